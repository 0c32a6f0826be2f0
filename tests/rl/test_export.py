"""What is exported is the policy of the round: transformers loads it and gives the same logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import config
from peft import PeftModel
from policies import guessing, policy
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer
from typer.testing import CliRunner

from flwr_agent.__main__ import _load_model, _load_strategy
from flwr_agent.arrays import ACTOR, digest, part
from flwr_agent.cli.app import app
from flwr_agent.cli.parts import Parts
from flwr_agent.errors import ConfigError, DataError, ResumeError
from flwr_agent.rl.learner import initial_model
from flwr_agent.rl.model import load_policy, on_base
from flwr_agent.rl.weights import load_weights
from server_app import checkpoint
from server_app.run import _write_config

IDS = torch.arange(4, 24)[None]
PARTS = Parts(load_strategy=_load_strategy, load_model=_load_model, rebuild=lambda _: [])


def run_of(folder, **keys):
    """A run folder with rounds 0 and 1, and the arrays of round 1."""
    (folder / "policy").mkdir()
    run = config(**guessing(folder / "policy") | keys, output_dir=str(folder / "run"))
    first = initial_model(run)
    noise = np.random.default_rng(0)
    moved = {n: v + 0.2 * noise.standard_normal(v.shape).astype("f4") for n, v in first.arrays.items()}
    (folder / "run").mkdir()
    for round_, arrays in enumerate((first.arrays, moved)):
        facts = {"digest": digest(arrays), "base_digest": first.base_digest, "experiment": "e", "ledger_position": 1}
        checkpoint.save(folder / "run", checkpoint.RunState(round=round_, arrays=arrays, **facts), run)
    _write_config(folder / "run", run)
    return run, moved


def export(folder, *options):
    done = CliRunner().invoke(app, ["export", str(folder / "run"), "--out", str(folder / "out"), *options], obj=PARTS)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def trained(run, arrays):
    policy = load_policy(run)
    load_weights(policy, part(arrays, ACTOR))
    return policy.eval()


def test_the_last_round_loads_in_transformers_with_the_same_logits(tmp_path):
    run, arrays = run_of(tmp_path)
    assert "round 1" in export(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(loaded), logits(trained(run, arrays)))
    assert not torch.allclose(logits(loaded), logits(load_policy(run)), atol=0.1)
    text = [{"role": "user", "content": "say a number"}]
    before, after = (
        AutoTokenizer.from_pretrained(folder).apply_chat_template(text) for folder in (run.model.path, tmp_path / "out")
    )
    assert before == after
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(fact in card for fact in ("round | 1 of", digest(arrays), run.fingerprint(), "fedavg", "tinyguess"))


def test_any_checkpointed_round_can_be_had(tmp_path):
    run, _ = run_of(tmp_path)
    export(tmp_path, "--round", "0")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(loaded), logits(load_policy(run)))
    with pytest.raises(ResumeError, match="has not kept round 7; it holds 0, 1"):
        export(tmp_path, "--round", "7")


def test_adapters_are_exported_merged_and_by_themselves(tmp_path):
    run, arrays = run_of(tmp_path, model__lora__rank=3)
    export(tmp_path)
    expected = logits(trained(run, arrays))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(run.model.path, dtype=torch.float32)
    assert not torch.allclose(logits(base), expected, atol=0.1)
    adapted = PeftModel.from_pretrained(base, tmp_path / "out" / "adapter").eval()
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(adapted), expected)


@pytest.mark.parametrize("command", ["export", "evaluate", "play"])
def test_adapters_are_never_laid_over_another_model(tmp_path, command):
    run, _ = run_of(tmp_path, model__lora__rank=3)
    own = initial_model(run).base_digest
    policy(seed=9).save_pretrained(run.model.path)
    folder = str(tmp_path / "run")
    rest = {
        "export": [folder, "--out", str(tmp_path / "out")],
        "evaluate": [folder],
        "play": ["tinyguess", "--model", folder],
    }[command]
    error = CliRunner().invoke(app, [command, *rest], obj=PARTS).exception
    assert isinstance(error, ConfigError)
    assert error.key == "model.path"
    assert own != initial_model(run).base_digest
    assert own in str(error)
    assert initial_model(run).base_digest in str(error)
    assert not (tmp_path / "out").exists()


def test_adapters_of_a_run_in_bfloat16_find_their_base_where_auto_is_float32(tmp_path):
    run, _ = run_of(tmp_path, model__lora__rank=3)
    held = replace(run, model=replace(run.model, compute_dtype="bfloat16"))
    assert on_base(run, initial_model(held).base_digest) == held


def test_whole_weights_need_no_base(tmp_path):
    run, arrays = run_of(tmp_path)
    policy(seed=9).save_pretrained(run.model.path)
    export(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(loaded), logits(trained(run, arrays)))


def test_a_critic_stands_beside_its_policy_and_starts_the_next_run(tmp_path):
    ppo = {"algorithm__name": "ppo", "algorithm__group_size": 1}
    _, arrays = run_of(tmp_path, **ppo)
    export(tmp_path)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "out" / "critic", dtype=torch.float32)
    kept = part(arrays, "critic/")
    assert all(np.array_equal(p.detach().numpy(), kept[name]) for name, p in loaded.named_parameters())
    again = config(**guessing(tmp_path / "policy") | ppo | {"model__path": str(tmp_path / "out")})
    assert digest(initial_model(again).arrays) == digest(arrays)


def test_nothing_beside_the_folder_is_touched(tmp_path):
    run_of(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out.tmp").mkdir()
    (tmp_path / "out.tmp" / "mine").write_text("")
    before = {path.name for path in tmp_path.iterdir()}
    export(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "out.tmp" / "mine").is_file()
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_what_stands_in_the_way_is_named(tmp_path):
    run_of(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(ConfigError, match="not an empty folder"):
        export(tmp_path)
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(DataError, match="give the folder of a run"):
        export(tmp_path)
