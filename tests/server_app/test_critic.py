"""What the server does with a critic: nothing but average, keep and name it."""

import pytest
from fakes import InMemoryGrid, client, config, model

from flwr_agent.arrays import digest, load
from flwr_agent.errors import ResumeError
from flwr_agent.requests import EvaluateReply, InitialModel
from server_app.run import run
from server_app.summary import FILE
from strategies import stream

pytestmark = pytest.mark.usefixtures("task_identity")
PPO = {"algorithm__name": "ppo", "algorithm__group_size": 1, "federation__rounds": 2}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


def start() -> InitialModel:
    actor = model()
    critic = {name.replace("actor/", "critic/"): values + 1 for name, values in actor.items()}
    return InitialModel(arrays=actor | critic, base_digest=digest(actor))


def play(folder, **keys) -> list[set[str]]:
    """Run; returns the names that each evaluation was given."""
    seen: list[set[str]] = []

    def score(request):
        seen.append(set(request.arrays))
        return EvaluateReply(round=request.round, metrics={"success": 0.0}, outcomes={"sampled/success": (0.0,)})

    options = config(output_dir=str(folder), **PPO | keys)
    run(options, InMemoryGrid(client()), initial_model=lambda _: start(), serve=score)
    return seen


def test_the_critic_is_averaged_and_kept_with_the_policy_and_plays_no_part_in_evaluation(tmp_path):
    seen = play(tmp_path)
    assert len(seen) == 3
    assert {name.partition("/")[0] for names in seen for name in names} == {"actor"}
    for round_ in (0, 1, 2):
        kept = load(tmp_path / f"round-{round_:05d}" / "model.safetensors")
        assert kept.keys() == start().arrays.keys()
    assert digest(kept) != digest(start().arrays)


def test_the_summary_says_where_the_critic_came_from_also_after_a_resume(tmp_path):
    play(tmp_path, federation__rounds=1)
    play(tmp_path)
    text = (tmp_path / FILE).read_text()
    for fact in ('"critic_init": "fresh-value-head"', '"start_critic": null', '"resumed_from_round": 1'):
        assert fact in text
    assert f'"final_critic": "{tmp_path / "round-00002"}"' in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algorithm__kl_anchor", "round"),
        ("algorithm__credit", "chained"),
        ("algorithm__critic_loss", "legacy_exact"),
        ("algorithm__importance_cap", 0.0),
        ("trainer__critic_lr", 0.5),
    ],
)
def test_another_objective_does_not_resume_the_run(tmp_path, key, value):
    play(tmp_path, federation__rounds=1)
    with pytest.raises(ResumeError, match=f"another objective: {key.replace('__', '.')} was"):
        play(tmp_path, **{key: value})
