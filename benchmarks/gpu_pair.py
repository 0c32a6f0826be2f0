"""Two GPUs of one host against one: `python -m benchmarks.gpu_pair MODEL FOLDER` prints what `gpu.md` says of them.

On recorded rows, ZeRO-2 and ZeRO-3 over both GPUs and two clients side by side have to move the weights as one process
on one GPU does (the relative gate of two code paths); leaving out one step must not pass. Then two client-rounds of
each with vLLM rollouts. Every part is a process of its own; dtypes and rollouts go side by side. Where there is one GPU
alone, the clients share it and a group has one rank.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from flwr_agent import arrays, presets
from flwr_agent.config import RunConfig
from flwr_agent.requests import TrainRequest
from flwr_agent.rl import launch, spawn
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.demos import demonstrate
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.trainer import Trainer
from flwr_agent.seeds import rng
from flwr_agent.world import to_adapter

STEPS, ROWS = 6, 65
"""Odd, so that two ranks need a filler."""
GATES = {"float32": (1e-3, 0.999), "bfloat16": (5e-2, 0.99)}
"""Largest relative distance and smallest cosine of two updates."""
SETTINGS = {
    "strategy.name": "fedprox",
    "strategy.prox_mu": 1.0,
    "trainer.lr": 1e-5,
    "trainer.max_grad_norm": 0.2,
    "trainer.micro_rows": 16,
    "trainer.tasks_per_step": 4,
    "algorithm.kl_coef": 0.05,
    "federation.epochs_per_round": 2,
    "rollout.schedule": "continuous",
    "rollout.engine": "vllm",
    "rollout.eager": True,
    "rollout.gpu_memory": 0.15,
    "rollout.max_turns": 5,
    "rollout.max_prompt_tokens": 384,
    "rollout.max_new_tokens": 24,
}
GPUS = launch.visible_gpus()[:2] or ["", ""]
GROUP = {"trainer.ranks": len(GPUS), "worker.gpus": float(len(GPUS))}
MODES: dict[str, dict[str, Any]] = {
    "none": {},
    "zero2": {"trainer.deepspeed": "zero2"} | GROUP,
    "zero3": {"trainer.deepspeed": "zero3"} | GROUP,
}
SPLIT = {"split": {"trainer.micro_rows": 8}}
"""One process as in `none`, its rows in other forwards: how far apart two orders of the same sums are."""


def main(model: str, folder: Path) -> None:
    """Run every part and print what it showed."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as lanes:
        ends = [lanes.submit(compare_all, folder, dtype, model) for dtype in GATES]
        ends.append(lanes.submit(roll_out_all, folder, model))
    for end in ends:
        end.result()


def compare_all(folder: Path, dtype: str, model: str) -> None:
    """Every way over recorded rows in one dtype, each against one process on one GPU."""
    run(folder, dtype, "none", "alone 0", "alone 1", "skipped", model=model)
    both = [begin(folder, dtype, "none", f"beside {i}", model=model, gpu=GPUS[i % len(GPUS)]) for i in range(2)]
    say(f"{dtype} two clients side by side: exit {[process.wait() for process in both]}")
    for mode in ("split", "zero2", "zero3"):
        run(folder, dtype, mode, "alone 0", model=model)
    compare(folder, dtype)


def roll_out_all(folder: Path, model: str) -> None:
    """Two client-rounds of each way with vLLM."""
    for mode in MODES:
        run(folder, "auto", mode, "rollouts", model=model)


def compare(folder: Path, dtype: str) -> None:
    """Print every pair's distance and cosine beside the gate."""
    pairs = {
        "client 0 side by side": (f"{dtype} none beside 0", f"{dtype} none alone 0"),
        "client 1 side by side": (f"{dtype} none beside 1", f"{dtype} none alone 1"),
        "forwards of 8 rows": (f"{dtype} split alone 0", f"{dtype} none alone 0"),
        "ZeRO-2": (f"{dtype} zero2 alone 0", f"{dtype} none alone 0"),
        "ZeRO-3": (f"{dtype} zero3 alone 0", f"{dtype} none alone 0"),
        "control: one step skipped": (f"{dtype} none skipped", f"{dtype} none alone 0"),
        "control: another client": (f"{dtype} none alone 1", f"{dtype} none alone 0"),
    }
    for what, (found, expected) in pairs.items():
        if all((folder / f"{name}.npz").exists() for name in (found, expected)):
            say(f"{dtype} {what}: {gate(folder, found, expected, *GATES[dtype])}")
        else:
            say(f"{dtype} {what}: not there")


def gate(folder: Path, found: str, expected: str, distance: float, cosine: float) -> str:
    """What the relative gate says of two updates: their weights, and the losses and norms of each step."""
    with np.load(folder / f"{found}.npz") as a, np.load(folder / f"{expected}.npz") as b:
        products = np.zeros(3)
        for name in b:
            if not name.startswith("step/"):
                x, y = a[name].ravel().astype(np.float64), b[name].ravel().astype(np.float64)
                products += x @ y, x @ x, y @ y
        steps = {name: (a[name], b[name]) for name in b if name.startswith("step/")}
    xy, xx, yy = products
    far, angle = float(np.sqrt(max(0.0, xx - 2 * xy + yy) / yy)), float(xy / np.sqrt(xx * yy))
    worst = max(
        float(np.abs(x - y).max() / np.abs(y).max()) if x.shape == y.shape else np.inf for x, y in steps.values()
    )
    verdict = "passes" if far <= distance and angle >= cosine and worst <= distance else "FAILS"
    return f"distance {far:.2e}, cosine {angle:.6f}, steps {worst:.1e}: {verdict}"


def run(folder: Path, dtype: str, mode: str, *parts: str, model: str) -> None:
    """One process, from its start to its end."""
    start = time.perf_counter()
    code = begin(folder, dtype, mode, *parts, model=model, gpu="" if mode.startswith("zero") else GPUS[0]).wait()
    say(f"{dtype} {mode} {', '.join(parts)}: exit {code} after {time.perf_counter() - start:.0f} s")


def begin(folder: Path, dtype: str, mode: str, *parts: str, model: str, gpu: str = "") -> subprocess.Popen[bytes]:
    """Start a process for some parts; it prints into a file of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu_pair", model, str(folder), dtype, mode, *parts]
    env = launch.worker_env(**({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}))
    with (folder / f"{dtype} {mode} {parts[0]}.log".replace(" ", "-")).open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)  # noqa: S603


def part(model: str, folder: Path, dtype: str, mode: str, *parts: str) -> None:
    """What a process does: recorded rows of clients, or rounds with rollouts."""
    config = presets.load(SETTINGS | {"model.path": model, "model.compute_dtype": dtype} | (MODES | SPLIT)[mode])
    if parts == ("rollouts",):
        for facts in rounds(config):
            say(f"{mode} {json.dumps(facts)}")
        return
    # Before the trainer: under ZeRO-3 whatever is loaded later is partitioned.
    start = arrays.part(initial_arrays(config), arrays.ACTOR)
    others = spawn.start_ranks(config)
    trainer = Trainer.load(config)
    for name in parts:
        client = int(name[-1]) if name[-1].isdigit() else 0
        moved = recorded(trainer, start, config, client, skip=3 if name == "skipped" else -1)
        np.savez(folder / f"{dtype} {mode} {name}.npz", **moved)
    spawn.end_ranks(others)


def recorded(trainer: Trainer, start: dict[str, Any], config: RunConfig, client: int, *, skip: int) -> dict[str, Any]:
    """A client-round on its rows: after minus before, and losses and norms of each step under `step/`."""
    trainer.begin_round(start, prox_mu=config.strategy.prox_mu)
    log = [trainer.train(rows(config, trainer.chat, client, step), seed=step) for step in range(STEPS) if step != skip]
    moved = {name: value - start[name] for name, value in trainer.weights().items()}
    names = [name for name in log[0] if name.endswith(("loss", "_norm"))]
    return moved | {f"step/{name}": np.array([step[name] for step in log]) for name in names}


def rows(config: RunConfig, chat: Chat, client: int, step: int) -> list[Sample]:
    """Demonstrated turns of the client's own tasks with drawn advantages; the same in every process."""
    adapter = to_adapter(config)
    first = 100 * (STEPS * client + step)
    demos = demonstrate(adapter, adapter.tasks("train")[first : first + 100], haste=0.0, history=2, seed=0)[:ROWS]
    prompts = chat.prompts([demo.prompt for demo in demos])
    answers = [chat.tokenizer(demo.answer, add_special_tokens=False)["input_ids"] for demo in demos]
    drawn = rng("advantages", client, step).choice([-1.0, 1.0], len(demos))
    return [
        Sample(prompt, ids, [1] * len(ids), [-1.0] * len(ids), [float(a)] * len(ids))
        for prompt, ids, a in zip(prompts, answers, drawn, strict=True)
    ]


def rounds(config: RunConfig) -> Iterator[dict[str, float]]:
    """Two client-rounds with rollouts, the second from the weights of the first."""
    weights = initial_arrays(config)
    learner = Learner(config)
    kept = ("loss", "grad_norm", "prox_norm", "sampler_gap", "update_norm", "time/", "kl", "success", "rows")
    for round_ in (1, 2):
        reply = learner.train(
            TrainRequest(
                experiment="pair",
                round=round_,
                client_id=0,
                config=config,
                arrays=weights,
                base_digest=learner.base_digest,
            )
        )
        weights = reply.arrays
        is_sane = all(np.isfinite(value).all() for value in weights.values())
        yield {"round": round_, "finite": is_sane, "values": sum(value.size for value in weights.values())} | {
            name: round(value, 6) for name, value in reply.metrics.items() if name.startswith(kept)
        }
    learner.close()


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    source, out, *which = sys.argv[1:]
    if which:
        part(source, Path(out), *which)
    else:
        main(source, Path(out).absolute())
