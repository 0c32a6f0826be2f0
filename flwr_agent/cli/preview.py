"""What a run will need, before it starts: the resolved configuration, memory, traffic and work, with the arithmetic."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from flwr_agent.cli.progress import LEDGER, Ledger, to_duration
from flwr_agent.config import RunConfig
from flwr_agent.rl.launch import num_gpus

FP32_BYTES = 4
GPU_FLOPS = 2e14
"""Training throughput assumed of one data-centre GPU in bf16; half of what an H200 was measured to reach."""


def settings(config: RunConfig, explicit: frozenset[str]) -> Table:
    """Every key with its value; those that were set are marked."""
    table = Table("key", "value", "set by you")
    for key, value in config.flat().items():
        table.add_row(key, str(value), "yes" if key in explicit else "")
    return table


def estimate(config: RunConfig, num_parameters: int | None) -> Table:
    """Memory, bytes and work of one round; each row says how it is derived."""
    table = Table("one round", "at most", "derived from")
    for row in [*_model_rows(config, num_parameters), *_work_rows(config, num_parameters)]:
        table.add_row(*row)
    return table


def count_parameters(path: str) -> int | None:
    """Parameters of the safetensors files in a model folder, read from their headers; None if there are none."""
    files = list(Path(path).expanduser().glob("*.safetensors"))
    return sum(_header_parameters(file) for file in files) or None


def _header_parameters(file: Path) -> int:
    with file.open("rb") as source:
        header = json.loads(source.read(int.from_bytes(source.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _model_rows(config: RunConfig, num_parameters: int | None) -> list[tuple[str, str, str]]:
    if num_parameters is None:
        return [
            ("model", "unknown", f"model.path={config.model.path} is not on this machine yet; parameters x 4 bytes")
        ]
    size, clients = num_parameters * FP32_BYTES, config.federation.clients_per_round
    copies = 5 + bool(config.algorithm.kl_coef)
    base = " + KL base" if config.algorithm.kl_coef else ""
    return [
        ("model", to_bytes(size), f"{num_parameters:,} parameters x {FP32_BYTES} bytes (fp32)"),
        ("client memory", to_bytes(copies * size), f"(received + weights + gradients + 2 AdamW moments{base}) x model"),
        ("server memory", to_bytes(3 * size), "(global model + sum + one reply) x model, for any number of clients"),
        ("traffic", to_bytes(2 * clients * size), f"2 directions x {clients} clients x model"),
    ]


def _work_rows(config: RunConfig, num_parameters: int | None) -> list[tuple[str, str, str]]:
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
    if num_parameters:
        passes = 2 + 6 + 2 + 2 * bool(config.algorithm.kl_coef)
        work = passes * num_parameters * read
        rows.append(("work", f"{work / 1e12:,.1f} TFLOP", f"{passes} x parameters x rows x (prompt + answer) tokens"))
        rows.append(("time", *_time(config, work)))
    return rows


def _time(config: RunConfig, work: float) -> tuple[str, str]:
    ledger = Path(config.output_dir) / LEDGER
    seen = Ledger(ledger).read()
    if seen.round_seconds:
        return to_duration(seen.mean_round_s), f"mean of {len(seen.round_seconds)} rounds in {ledger}"
    gpus = num_gpus()
    if gpus:
        return to_duration(work / gpus / GPU_FLOPS), f"work / ({gpus} GPUs x {GPU_FLOPS:.0e} FLOP/s, assumed)"
    rate = cpu_flops()
    return to_duration(
        work / rate
    ), f"work / {rate:.1e} FLOP/s (a matrix product, measured just now); overheads come on top"


def cpu_flops(size: int = 512, duration_s: float = 0.2) -> float:
    """fp32 operations per second of a square matrix product on this machine, all cores."""
    left = np.ones((size, size), dtype=np.float32)
    left @ left
    start, products = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < duration_s:
        left @ left
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
