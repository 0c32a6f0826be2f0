"""`python -m flwr_agent export`: a checkpointed round as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from flwr_agent import presets
from flwr_agent.cli.options import folder_to_write
from flwr_agent.cli.parts import Parts
from flwr_agent.config import resolve
from flwr_agent.paths import code_hash


def export(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    *,
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Folder to write; new or empty.")],
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="A checkpointed round; the last one if unset.")
    ] = None,
) -> None:
    """Write the model of a round for transformers: safetensors, tokenizer, config, card; adapters also by themselves."""
    config, parts = resolve(presets.of_run(run)), cast(Parts, context.obj)
    number, arrays, base = parts.load_model(run, round_)
    from flwr_agent.arrays import digest
    from flwr_agent.rl.export import export as write
    from flwr_agent.rl.model import on_base

    fed = config.federation
    facts = {
        "base model": config.model.path,
        "run": run.resolve().name,
        "round": f"{number} of {fed.rounds}",
        "clients": f"{fed.total_clients}, {fed.clients_per_round} a round",
        "strategy": config.strategy.name,
        "environment": config.env.name,
        "partition": config.partition.strategy,
        "seed": str(config.seed),
        "configuration": config.fingerprint(),
        "weights": digest(arrays),
        "code": code_hash(),
    }
    written = write(on_base(config, base), arrays, out.absolute(), facts=facts)
    Console().print(f"round {number} of {run}: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
