"""What a run will need, before it starts: the resolved configuration, memory, traffic and work, with the arithmetic."""

from __future__ import annotations

import json
import math
import re
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from safetensors import SafetensorError, safe_open

from flwr_agent.accountant import epsilon
from flwr_agent.cli.progress import LEDGER, Progress, to_duration
from flwr_agent.config import RunConfig
from flwr_agent.errors import DataError
from flwr_agent.rl.launch import visible_gpus

FP32_BYTES = 4
_NAMED_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")
_UNITS = {"B": 1e9, "M": 1e6}
GPU_FLOPS = 2e14
"""Training throughput assumed of one data-centre GPU in bf16; half of what an H200 was measured to reach."""


def settings(config: RunConfig, explicit: frozenset[str]) -> str:
    """Every key with its value, as a preset would write it; those that were set are marked."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in config.flat().items()]
    return "\n".join(f"{line}  # set" if line.partition(":")[0] in explicit else line for line in lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How many parameters a model has."""

    parameters: int
    source: str
    """Where the number is from, in words."""


def size_of(path: str) -> Size | None:
    """Size of a model folder from its safetensors headers, of a hub id from the number in its name; else None.

    Example:
        >>> size_of("Qwen/Qwen2.5-1.5B-Instruct").parameters
        1500000000
    """
    files = list(Path(path).expanduser().glob("*.safetensors"))
    if counted := sum(_header_parameters(file) for file in files):
        return Size(parameters=counted, source="counted in its files")
    if named := _NAMED_SIZE.search(path):
        return Size(parameters=int(float(named[1]) * _UNITS[named[2].upper()]), source="by its name")
    return None


def estimate(config: RunConfig, size: Size | None) -> Table:
    """Memory, bytes and work of one round; each row says how it is derived."""
    table = Table("one round", "at most", "derived from")
    for row in [*_model_rows(config, size), *_work_rows(config, size), *_privacy_rows(config)]:
        table.add_row(*row)
    return table


def _header_parameters(file: Path) -> int:
    try:
        with safe_open(file, framework="numpy") as tensors:
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(file, "safetensors header", f"{error}; copy the model again") from error


def _model_rows(config: RunConfig, of_model: Size | None) -> list[tuple[str, str, str]]:
    if of_model is None:
        return [
            ("model", "unknown", f"model.path={config.model.path} is not on this machine yet; parameters x 4 bytes")
        ]
    size, clients = of_model.parameters * FP32_BYTES, config.federation.clients_per_round
    is_ppo = config.algorithm.name == "ppo"
    copies = 5 * (1 + is_ppo) + bool(config.algorithm.kl_coef)
    base = " + KL base" if config.algorithm.kl_coef else ""
    models, sent = ("2 models (policy, critic)", 2 * size) if is_ppo else ("model", size)
    return [
        (
            "model",
            to_bytes(size),
            f"{of_model.parameters:,} parameters ({of_model.source}) x {FP32_BYTES} bytes (fp32)",
        ),
        (
            "client memory",
            to_bytes(copies * size),
            f"(received + weights + gradients + 2 AdamW moments) x {models}{base}; activations come on top",
        ),
        (
            "server memory",
            to_bytes(4 * sent),
            f"(global model + mean + two replies) x {models}, for any number of clients",
        ),
        ("traffic", to_bytes(2 * clients * sent), f"2 directions x {clients} clients x {models}"),
    ]


def _work_rows(config: RunConfig, of_model: Size | None) -> list[tuple[str, str, str]]:
    fed, rollout = config.federation, config.rollout
    steps = fed.clients_per_round * fed.epochs_per_round
    episodes = steps * config.trainer.tasks_per_step * config.algorithm.group_size
    turns = episodes * rollout.max_turns
    generated = turns * rollout.max_new_tokens
    read = turns * (rollout.max_prompt_tokens + rollout.max_new_tokens)
    rows = [
        ("episodes", f"{episodes:,}", "clients x epochs_per_round x tasks_per_step x group_size"),
        ("training rows", f"{turns:,}", "episodes x max_turns (every episode to the last turn)"),
        ("tokens generated", f"{generated:,}", "rows x max_new_tokens"),
    ]
    if of_model:
        passes = 2 + 6 + 2 + 2 * bool(config.algorithm.kl_coef) + 8 * (config.algorithm.name == "ppo")
        work = passes * of_model.parameters * read
        rows.append(("work", f"{work / 1e12:,.1f} TFLOP", f"{passes} x parameters x rows x (prompt + answer) tokens"))
        rows.append(("time", *_time(config, work)))
    return rows


def _privacy_rows(config: RunConfig) -> list[tuple[str, str, str]]:
    own, rounds = config.privacy, config.federation.rounds
    if not own.noise_multiplier:
        return []
    spent = epsilon(own.noise_multiplier, rounds, own.delta)
    source = f"all {rounds} rounds at delta {own.delta:g}, noise {own.noise_multiplier:g} x clip; the weights alone"
    rows = [("privacy spent", f"epsilon {spent:.3g}", source)]
    if own.budget and spent > own.budget:
        fits = bisect_right(range(1, rounds + 1), own.budget, key=lambda n: epsilon(own.noise_multiplier, n, own.delta))
        source = f"privacy.budget={own.budget:g} ends the run before round {fits + 1}; raise it, or the noise"
        rows.append(("rounds in budget", f"{fits} of {rounds}", source))
    return rows


def _time(config: RunConfig, work: float) -> tuple[str, str]:
    ledger = Path(config.output_dir) / LEDGER
    if measured_s := 0 if config.fresh else Progress.read(ledger).mean_round_s:
        return to_duration(measured_s), f"mean of the rounds in {ledger}"
    gpus = len(visible_gpus())
    if gpus:
        return to_duration(work / gpus / GPU_FLOPS), f"work / ({gpus} GPUs x {GPU_FLOPS:.0e} FLOP/s, assumed)"
    rate = cpu_flops()
    return to_duration(
        work / rate
    ), f"work / {rate:.1e} FLOP/s (a matrix product, measured just now); overheads come on top"


def cpu_flops(size: int = 512, duration_s: float = 0.2) -> float:
    """fp32 operations per second of a square matrix product on this machine, all cores."""
    left = np.ones((size, size), dtype=np.float32)
    np.matmul(left, left)
    start, products = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < duration_s:
        np.matmul(left, left)
        products += 1
    return products * 2 * size**3 / elapsed


def to_bytes(count: float) -> str:
    """A byte count in the largest unit that keeps it above 1.

    Example:
        >>> to_bytes(6_174_857_216)
        '6.17 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
