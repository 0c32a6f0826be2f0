"""The ServerApp: a flat run configuration in, a run folder out."""

from __future__ import annotations

import os
from functools import partial

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import strategies
from flwr_agent import presets, validate
from server_app.run import run
from strategies.nodes import farewell

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run or resume what the run configuration says; what is wrong with it ends the run with one line."""
    layers = presets.read(context.run_config)
    config = presets.build(layers)
    validate.check(config, layers.flat, load_strategy=strategies.load)
    if config.evaluation.where == "server":
        validate.check_interpreter(config)
        validate.check_world(config)
    from flwr_agent.rl import worker

    try:
        run(config, grid, initial_model=worker.initial_model, serve=partial(worker.call, node=f"server-{os.getpid()}"))
    finally:
        farewell(grid)
