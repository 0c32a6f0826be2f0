"""One client of the published shapes on one GPU: seconds by stage, raw vLLM beside it, memory.

`python -m benchmarks.gpu_shape SHAPE TOKENIZER FOLDER` writes `FOLDER/SHAPE.json`; `benchmarks.gpu` runs it.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from flwr_agent.config import RunConfig, resolve
from flwr_agent.requests import Arrays, TrainRequest
from flwr_agent.rl.batch import to_batch
from flwr_agent.rl.generate import Request
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.vllm_colocated import to_params
from flwr_agent.rl.weights import whole
from flwr_agent.seeds import client_seed, row_seeds, seed_for
from flwr_agent.world import to_shard

SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2},
}  # fmt: skip
"""Qwen2.5's; `tiny` tries the program on a CPU."""
VOCABULARY = 151_936
SHORT, LONG = 1200, 4096
"""Prompt tokens."""
TURNS = 3
"""Rollouts of each schedule with the waves of their own requests after them."""


def main(shape: str, tokenizer: str, folder: Path, *, has_long: bool, has_turns: bool) -> None:
    """Measure one shape and write what was seen."""
    path, start = make_model(shape, tokenizer, folder), time.perf_counter()
    config = to_config(shape, path)
    # The engine is made for the longest prompts that will come.
    learner = Learner(replace(config, rollout=replace(config.rollout, max_prompt_tokens=LONG if has_long else SHORT)))
    seen: dict[str, Any] = {"shape": shape, "build_s": time.perf_counter() - start, "gpu": gpu(), "rounds": []}
    weights = initial_arrays(config)
    for round_ in range(1, 4):
        asked, facts, weights = client_round(learner, config, weights, round_)
        seen["rounds"].append(facts)
        save(folder, seen)
    seen |= {"waves": raw_waves(learner, asked), "bare": bare(learner)}
    save(folder, seen)
    seen["plain_waves"] = raw_waves(learner, asked, is_plain=True)
    save(folder, seen)
    if has_turns:
        seen["turns"] = turns(learner, config)
        save(folder, seen)
    if has_long:
        asked, seen["long"], _ = client_round(learner, lengthened(config), weights, 4)
        save(folder, seen)
        seen["long_waves"] = raw_waves(learner, asked)
    save(folder, seen)


def make_model(shape: str, tokenizer: str, folder: Path) -> str:
    """A policy of a shape with random weights under another model's tokenizer."""
    path = folder / f"model-{shape}"
    if not path.exists():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        sizes = Qwen2Config(
            vocab_size=VOCABULARY, tie_word_embeddings=True, max_position_embeddings=32768, **SHAPES[shape]
        )
        with torch.device(device):
            model = Qwen2ForCausalLM(sizes)
        model.to(torch.bfloat16).save_pretrained(path)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(path)
        del model
        torch.cuda.empty_cache()
    return str(path)


def to_config(shape: str, path: str) -> RunConfig:
    """The published recipe at one update step a client-round, prompts of `SHORT` tokens and answers of 100."""
    small = {"trainer.tasks_per_step": 1, "algorithm.group_size": 2, "rollout.max_turns": 2} if shape == "tiny" else {}
    return resolve(
        {
            "model.path": path,
            "env.name": "benchmarks.gpu_world:PaddedShop",
            "prompt.style": "paper",
            "strategy.name": "fedprox",
            "strategy.prox_mu": 0.01,
            "algorithm.kl_coef": 0.01,
            "algorithm.group_size": 8,
            "trainer.tasks_per_step": 8,
            "trainer.lr": 1e-6,
            "trainer.minibatch_rows": 64,
            "trainer.micro_rows": 16,
            "federation.epochs_per_round": 1,
            "rollout.engine": "vllm",
            "rollout.schedule": "continuous",
            "rollout.gpu_memory": 0.25,
            "rollout.max_turns": 15,
            "rollout.max_new_tokens": 100,
            "rollout.max_prompt_tokens": SHORT,
            "partition.tasks_per_client": 100,
            **small,
        }
    )


def lengthened(config: RunConfig) -> RunConfig:
    """The same with prompts of `LONG` tokens."""
    return replace(
        config,
        env=replace(config.env, name="benchmarks.gpu_world:LongShop"),
        rollout=replace(config.rollout, max_prompt_tokens=LONG),
        trainer=replace(config.trainer, micro_rows=4),
    )


def client_round(
    learner: Learner, config: RunConfig, weights: Arrays, round_: int
) -> tuple[list[Request], dict[str, float], Arrays]:
    """One client-round: the requests to the engine in their order, seconds and bytes by name, the new weights."""
    learner.config = config
    request = TrainRequest(
        experiment="gpu", round=round_, client_id=0, config=config, arrays=weights, base_digest=learner.base_digest
    )
    facts: dict[str, float] = {}
    reset_peak()
    start = time.perf_counter()
    with recorded(learner.engine.backend) as asked, measured(learner.trainer, "begin_round", facts):
        reply = learner.train(request)
    facts |= {"wall_s": time.perf_counter() - start, "rows": float(reply.num_examples)} | memory()
    kept = ("time/", "prompt_tokens", "response_tokens", "sampler", "importance", "turns", "updates")
    return asked, facts | {n: v for n, v in reply.metrics.items() if n.startswith(kept)}, reply.arrays


@contextmanager
def recorded(backend: Any) -> Iterator[list[Request]]:
    """The requests that the block makes."""
    asked: list[Request] = []
    submit = backend.submit
    backend.submit = lambda request: (asked.append(request), submit(request))
    try:
        yield asked
    finally:
        del backend.submit


@contextmanager
def measured(trainer: Any, name: str, facts: dict[str, float]) -> Iterator[None]:
    """Seconds of a method of the trainer, and the bytes that tensors hold when it returns."""
    method = getattr(trainer, name)

    def timed(*arguments: Any, **keywords: Any) -> None:
        start = time.perf_counter()
        method(*arguments, **keywords)
        synchronize()
        facts["start_s"] = time.perf_counter() - start
        facts["allocated_after_load"] = memory()["allocated"]

    setattr(trainer, name, timed)
    try:
        yield
    finally:
        delattr(trainer, name)


def raw_waves(learner: Learner, asked: list[Request], *, is_plain: bool = False) -> dict[str, float]:
    """The same prompts by vLLM itself, turn after turn, each turn at once, from an empty cache.

    `is_plain` leaves out what training needs of an answer: a seed of its own and the sampled tokens' log-probs.
    """
    turns: dict[int, list[Request]] = defaultdict(list)
    for request in asked:
        turns[sum(request.key == other.key for wave in turns.values() for other in wave)].append(request)
    backend = learner.engine.backend
    with learner.engine.awake(whole(learner.trainer.model)):
        start = time.perf_counter()
        for wave in turns.values():
            prompts = [{"prompt_token_ids": request.prompt_ids} for request in wave]
            parameters = [to_params(request, backend._eos_ids) for request in wave]
            for one in parameters if is_plain else ():
                one.seed = one.logprobs = None
            backend.llm.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - start
    return {"waves": float(len(turns)), "requests": float(len(asked)), "seconds": seconds}


def turns(learner: Learner, config: RunConfig) -> list[dict[str, Any]]:
    """Rollouts of both schedules and raw waves of the very same requests, one after the other, with nothing between."""
    found = []
    for turn in range(TURNS):
        for schedule in ("continuous", "lockstep"):
            learner.config = replace(config, rollout=replace(config.rollout, schedule=schedule))
            asked, seconds = rollout_alone(learner, turn)
            waves = raw_waves(learner, asked)["seconds"]
            found.append({"schedule": schedule, "rollout": seconds, "waves": waves})
    return found


def rollout_alone(learner: Learner, turn: int) -> tuple[list[Request], float]:
    """The requests of one rollout with the weights as they are, and its seconds without waking the engine."""
    config, engine = learner.config, learner.engine
    shard = to_shard(config, learner._adapter(config, None).tasks("train"), 0)
    [seeds] = row_seeds(client_seed(config.seed, turn, 0), config.trainer.tasks_per_step, 1)
    switching_s, start = engine.switching_s, time.perf_counter()
    with recorded(engine.backend) as asked:
        learner._roll_out(shard, seeds, seed_for("turn", turn))
    return asked, time.perf_counter() - start - (engine.switching_s - switching_s)


def bare(learner: Learner) -> dict[str, float]:
    """Tokens a second of the model's own forward, and forward and backward, on one micro-batch of rows of that length."""
    rows = [Sample([7] * SHORT, [9] * 100, [1] * 100, [-1.0] * 100, [1.0] * 100)] * learner.config.trainer.micro_rows
    seam, tokens = learner.trainer.seam, len(rows) * (SHORT + 100)
    batch = to_batch(rows, pad_id=0, num_tokens=len(rows) * 100, device=seam.accelerator.device)
    batch["ref_per_token_logps"] = seam.score(seam.model, batch)
    rates = {}
    for name, call in {
        "forward": lambda: seam.score(seam.model, batch),
        "update": lambda: seam.accelerator.backward(seam.loss(dict(batch))),
    }.items():
        call()
        synchronize()
        start = time.perf_counter()
        for _ in range(3):
            call()
        synchronize()
        rates[f"{name}_tokens_per_s"] = 3 * tokens / (time.perf_counter() - start)
    seam.optimizer.zero_grad()
    return rates


def memory() -> dict[str, float]:
    """Bytes on the GPU: of tensors now and at most, and of everything."""
    if not torch.cuda.is_available():
        return {"allocated": 0.0, "peak": 0.0, "used": 0.0}
    free, total = torch.cuda.mem_get_info()
    now, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    return {"allocated": float(now), "peak": float(peak), "used": float(total - free)}


def gpu() -> str:
    """Its name."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def reset_peak() -> None:
    """Count the peak anew."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def synchronize() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def save(folder: Path, seen: dict[str, Any]) -> None:
    """Write what was seen so far, and say that there is something new."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {seen['shape']}: {', '.join(seen)}, {len(seen['rounds'])} rounds\n")
    (folder / f"{seen['shape']}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


if __name__ == "__main__":
    name, source, out, *options = sys.argv[1:]
    main(name, source, Path(out), has_long="long" in options, has_turns="turns" in options)
