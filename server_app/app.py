"""The ServerApp: a flat run configuration in, a run folder out."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import strategies
from flwr_agent import presets, validate
from server_app.run import run
from strategies.nodes import farewell

logger = logging.getLogger("flwr.agent")
app = ServerApp()
INSTALLED = "runtime-envs"
"""Folder of Flower's home for the packages it installs for a run, if it is not told not to."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run or resume what the run configuration says; what is wrong with it ends the run with one line."""
    if any(INSTALLED in Path(entry).parts for entry in sys.path):
        logger.warning(
            "Flower has installed a second set of packages in front of yours; end its SuperLink and start it again with "
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 (docs/deployment.md), or use flwr-agent run"
        )
    layers = presets.read(context.run_config)
    config = presets.build(layers)
    validate.check(config, layers.flat, load_strategy=strategies.load)
    if config.evaluation.where == "server":
        validate.check_interpreter(config)
        validate.check_world(config)
    from flwr_agent.rl import worker

    node = f"server-{os.getpid()}"
    try:
        run(config, grid, initial_model=worker.initial_model, serve=lambda asked: worker.call(asked, node=node))
    finally:
        farewell(grid)
