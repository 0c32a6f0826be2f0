"""What one GPU gives: `python -m benchmarks.gpu TOKENIZER MODEL FOLDER` measures and prints the tables of `gpu.md`.

TOKENIZER is a model folder or id whose tokenizer the random shapes borrow, MODEL is SmolLM2-135M (folder, GGUF or id).
Each part is a process of its own, so that one which fails costs the others nothing; parts whose file is there are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SHAPES = ("0.5B", "1.5B")
LENGTH = 1300
"""Tokens of a row: 1,200 of prompt and 100 of answer."""
STEPS, CLIENTS = 3, 2
"""Update steps of a client-round and clients of a round in the published recipe."""


def main(tokenizer: str, model: str, folder: Path) -> None:
    """Measure what is missing, then print everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for shape in SHAPES:
        if not (folder / f"{shape}.json").exists():
            more = ["long", "turns"] if shape == "0.5B" else []
            subprocess.run([sys.executable, "-m", "benchmarks.gpu_shape", shape, tokenizer, str(folder), *more])  # noqa: S603
    if not list(folder.glob("learn-*.json")):
        subprocess.run([sys.executable, "-m", "benchmarks.gpu_learn", model, str(folder)])  # noqa: S603
    report(folder)


def report(folder: Path) -> None:
    """Print the tables of what lies in `folder`."""
    for shape in SHAPES:
        if (file := folder / f"{shape}.json").exists():
            show_shape(json.loads(file.read_text(encoding="utf-8")))
    for file in sorted(folder.glob("learn-*.json")):
        show_learning(json.loads(file.read_text(encoding="utf-8")))


def show_shape(seen: dict[str, Any]) -> None:
    """Stages of the last round beside their limits, then starts and memory of all."""
    last, waves, bare = seen["rounds"][-1], seen["waves"], seen["bare"]
    tokens = last["rows"] * LENGTH
    limits = {
        "rollout": waves["seconds"],
        "logprobs": 2 * tokens / bare["forward_tokens_per_s"],
        "update": tokens / bare["update_tokens_per_s"],
    }
    stages = {name.removeprefix("time/"): value for name, value in last.items() if name.startswith("time/")}
    write(f"## {seen['shape']} on one {seen['gpu']}\n")
    table(("stage", "s", "limit, s", "share of it"), [_stage(name, s, limits.get(name)) for name, s in stages.items()])
    step = sum(stages[name] for name in ("rollout", "logprobs", "update", "sync"))
    once = stages["load"] + stages["export"]
    minutes = [CLIENTS * (STEPS * (step + more) + once) / 60 for more in (0.0, stages["idle"])]
    named = f"A round of {CLIENTS} clients with {STEPS} steps each, from these"
    write(f"{named}: {minutes[0]:.1f} min, {minutes[1]:.1f} with what is in no stage (idle).\n")
    facts = ("start_s", "wall_s", "allocated_after_load", "allocated", "peak", "used")
    rows = [(str(i), *(_number(facts_of[name]) for name in facts)) for i, facts_of in enumerate(seen["rounds"], 1)]
    table(("round", *facts), rows)
    write(f"Model, trainer and engine were made in {seen['build_s']:.0f} s.\n")
    if "turns" in seen:
        pairs = [(line["schedule"], line["rollout"], line["waves"]) for line in seen["turns"]]
        rows = [(name, f"{ours:.2f}", f"{raw:.2f}", f"{raw / ours:.0%}") for name, ours, raw in pairs]
        table(("schedule", "rollout, s", "its requests as raw waves, s", "share"), rows)


def show_learning(seen: dict[str, Any]) -> None:
    """Success by round."""
    write(f"## Learning rate {seen['lr']:g}\n")
    rows = [
        (str(line["round"]), *("{:.3f} ({:.3f} to {:.3f})".format(*line[mode]) for mode in ("sampled", "greedy")))
        for line in seen["evaluations"]
    ]
    table(("round", "sampled", "greedy"), rows)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a Markdown table."""
    for row in (header, ("---",) * len(header), *rows):
        write(f"| {' | '.join(row)} |")
    write("")


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def _stage(name: str, seconds: float, limit: float | None) -> tuple[str, ...]:
    if limit is None:
        return name, f"{seconds:.2f}", "", ""
    return name, f"{seconds:.2f}", f"{limit:.2f}", f"{limit / seconds:.0%}"


def _number(value: float) -> str:
    return f"{value / 2**30:.2f} GiB" if value > 1e6 else f"{value:.2f}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).absolute())
