"""What the trainer relies on in vLLM, against the real thing: colocated and as a server. Run by `make vllm`."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
from policies import chat

from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import ConfigError
from flwr_agent.paths import ROOT
from flwr_agent.rl import launch, spawn
from flwr_agent.rl.engine import Engine, to_engine
from flwr_agent.rl.generate import GREEDY, Completion, Request, TransformersGenerator
from flwr_agent.rl.tiny import Recipe, to_model
from flwr_agent.rl.weights import whole
from flwr_agent.seeds import rng

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
vllm = pytest.importorskip("vllm", reason="needs vLLM: make vllm")
VOCABULARY, END = len(chat().tokenizer), 3
LONGEST = 40
EXACT = 1e-4
"""Both sides compute in fp32; other kernels add in another order."""


def policy(*, tied: bool = True) -> torch.nn.Module:
    model = to_model(VOCABULARY, Recipe(hidden_size=64, num_layers=2, num_heads=2))
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return shaken(model, 0)


@torch.no_grad()
def shaken(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The model, each of its weights moved."""
    for name, p in sorted(model.named_parameters()):
        p += 0.2 * torch.from_numpy(rng("shake", seed, name).standard_normal(tuple(p.shape))).float()
    return model


def save(folder: Path, model: torch.nn.Module) -> str:
    model.save_pretrained(folder)
    chat().tokenizer.save_pretrained(folder)
    return str(folder)


def run_config(path: str, **keys: object) -> RunConfig:
    rollout = {"rollout.engine": "vllm", "rollout.eager": True, "rollout.max_prompt_tokens": LONGEST}
    return resolve({"model.path": path, **rollout, **{key.replace("__", "."): value for key, value in keys.items()}})


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[tuple[str, str]]:
    """Address of a real server and the folder of its model."""
    folder = tmp_path_factory.mktemp("served")
    path, (port,) = save(folder, policy()), launch.free_ports(1)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    env |= spawn.VLLM | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    arguments = ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs", "--enforce-eager"]
    arguments += ["--worker-extension-cls", "flwr_agent.rl.vllm_weights.WeightLoader", "--max-model-len", "64"]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", path, "--dtype", "float32"]
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port), *arguments], env=env, stdout=log, stderr=log
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(process, url, folder / "log")
        yield url, path
    finally:
        process.terminate()
        process.wait(60)


def wait_until_healthy(process: subprocess.Popen, url: str, log: Path) -> None:
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        with suppress(OSError):
            urlopen(f"{url}/health", timeout=5).close()  # noqa: S310
            return
        time.sleep(0.2)


@contextmanager
def group_of_two(folder: Path) -> Iterator[None]:
    """This process as rank 0, beside another that only waits."""
    join = "import sys, torch.distributed as d; d.init_process_group('gloo', 'file://' + sys.argv[1], rank={}, world_size=2)"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{join.format(1)}; sys.stdin.read()", folder / "group"], stdin=subprocess.PIPE
    )
    torch.distributed.init_process_group("gloo", f"file://{folder / 'group'}", rank=0, world_size=2)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
        other.communicate(timeout=60)


# A group has to come first: an engine in this process makes one of its own, which stays.
@pytest.fixture(scope="module", params=["beside a group", "tied", "untied", "served"])
def pair(request, tmp_path_factory) -> Iterator[tuple[torch.nn.Module, Engine]]:
    """A model and the engine that it is loaded into."""
    if request.param == "beside a group":
        path, model = save(tmp_path_factory.mktemp("group"), policy()), policy()
        run = run_config(path, trainer__deepspeed="zero2", trainer__ranks=2, worker__gpus=2.0)
        with group_of_two(tmp_path_factory.mktemp("rendezvous")):
            engine = to_engine(run, model, chat(), path)
            yield model, engine
            engine.backend.llm.llm_engine.engine_core.shutdown()
        return
    if request.param == "served":
        url, path = request.getfixturevalue("server")
        model = policy()
        yield model, to_engine(run_config(path, rollout__server_url=url), model, chat(), path)
        return
    model = policy(tied=request.param == "tied")
    path = save(tmp_path_factory.mktemp(request.param), model)
    yield model, to_engine(run_config(path), model, chat(), path)


def requests(count: int, *, temperature: float = 1.0, max_new_tokens: int = 12) -> list[Request]:
    draw = rng("vllm requests")
    prompts = [draw.integers(4, VOCABULARY, draw.integers(1, LONGEST + 1)).tolist() for _ in range(count)]
    return [Request(i, prompt, 10**18 + i, max_new_tokens, temperature) for i, prompt in enumerate(prompts)]


def answers(model: torch.nn.Module, engine: Engine, wanted: list[Request]) -> list[Completion]:
    with engine.awake(whole(model)):
        for request in wanted:
            engine.submit(request)
        found: list[Completion] = []
        while len(found) < len(wanted):
            found += engine.collect()
    return sorted(found, key=lambda completion: completion.key)


def gap(model: torch.nn.Module, wanted: list[Request], found: list[Completion]) -> float:
    """Largest difference between the engine's log-probs and those of a forward of the trainer's model."""
    worst = 0.0
    for request, answer in zip(wanted, found, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([request.prompt_ids + answer.ids])).logits[0, len(request.prompt_ids) - 1 : -1]
        logprobs = (logits / (request.temperature or 1.0)).log_softmax(-1)
        expected = logprobs.gather(1, torch.tensor(answer.ids)[:, None])[:, 0]
        worst = max(worst, float((expected - torch.tensor(answer.logprobs)).abs().max()))
    return worst


@pytest.mark.parametrize("temperature", [1.0, 0.4, GREEDY])
def test_log_probs_are_those_of_the_trainer_s_forward(pair, temperature: float):
    model, engine = pair
    wanted = requests(12, temperature=temperature)
    assert gap(model, wanted, answers(model, engine, wanted)) < EXACT


def test_greedy_tokens_are_those_of_the_transformers_engine(pair):
    model, engine = pair
    wanted = requests(12, temperature=GREEDY)
    plain = TransformersGenerator(model, eos_ids=[END], pad_id=0)
    for request in wanted:
        plain.submit(request)
    assert [c.ids for c in answers(model, engine, wanted)] == [c.ids for c in plain.collect()]


def test_weights_are_exact_after_every_load_and_nothing_cached_survives_one(pair):
    model, engine = pair
    wanted = requests(8)
    seen = []
    for seed in (1, 2, 3):
        shaken(model, seed)
        seen.append(answers(model, engine, wanted))
        assert gap(model, wanted, seen[-1]) < EXACT
    assert seen[0] != seen[1] != seen[2]


@pytest.mark.parametrize("skipped", ["flwr_agent.rl.vllm_weights.load_into", "process_weights_after_loading"])
def test_without_the_load_or_its_last_step_the_test_above_fails(tmp_path, monkeypatch, skipped: str):
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    model = policy()
    path = save(tmp_path, model)
    engine = to_engine(run_config(path), model, chat(), path)
    wanted = requests(8)
    assert gap(model, wanted, answers(model, engine, wanted)) < EXACT
    if "." in skipped:
        monkeypatch.setattr(skipped, lambda *_: None)
    else:
        monkeypatch.setattr(UnquantizedEmbeddingMethod, skipped, lambda *_: None)
    shaken(model, 1)
    assert gap(model, wanted, answers(model, engine, wanted)) > 20 * EXACT


def test_an_answer_ends_at_an_end_token_or_at_its_limit_and_what_comes_before_stays(pair):
    model, engine = pair
    wanted = [Request(r.key, r.prompt_ids, r.seed, 1 + r.key % 12, 1.0) for r in requests(40)]
    free = answers(model, engine, wanted)
    often = max(range(4, VOCABULARY), key=lambda token: sum(token in c.ids[1:-1] for c in free))
    backend = engine.backend
    before, backend._eos_ids = backend._eos_ids, [END, often]
    try:
        found = answers(model, engine, wanted)
    finally:
        backend._eos_ids = before
    assert any(c.ids[-1] == often for c in found)
    for request, one, other in zip(wanted, found, free, strict=True):
        assert one.ids == other.ids[: other.ids.index(often) + 1 if often in other.ids else None]
        assert one.ids[-1] in (END, often) or len(one.ids) == request.max_new_tokens
        assert len(one.ids) == len(one.logprobs)


def test_siblings_differ_and_an_answer_depends_on_its_request_alone(pair):
    model, engine = pair
    one = requests(1)[0]
    siblings = [Request(i, one.prompt_ids, i, 12, 1.0) for i in range(16)]
    found = answers(model, engine, siblings)
    assert len({tuple(c.ids) for c in found}) == 16
    assert [c.ids for c in answers(model, engine, siblings)] == [c.ids for c in found]
    assert answers(model, engine, siblings[5:6])[0].ids == found[5].ids


def test_what_is_open_when_a_block_fails_is_forgotten(pair):
    model, engine = pair

    def failing():
        with engine.awake(whole(model)):
            for request in requests(4):
                engine.submit(request)
            raise KeyError("x")

    with pytest.raises(KeyError):
        failing()
    assert [c.key for c in answers(model, engine, requests(3))] == [0, 1, 2]


def test_a_server_that_is_not_there_is_named(tmp_path):
    (port,) = launch.free_ports(1)
    with pytest.raises(
        ConfigError, match=r"rollout\.server_url='http://127.*: no vLLM server answers there; start one"
    ):
        to_engine(run_config(str(tmp_path), rollout__server_url=f"http://127.0.0.1:{port}"), policy(), chat(), "")
