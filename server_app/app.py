"""The ServerApp: a flat run configuration in, a run folder out."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_agent import presets
from server_app.run import run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run or resume what the run configuration says."""
    config = presets.load(context.run_config)
    from flwr_agent.rl import worker

    run(config, grid, initial_arrays=worker.initial_arrays, serve=worker.serve)
