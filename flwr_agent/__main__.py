"""`python -m flwr_agent`: the one place that may import every package."""

from __future__ import annotations

import sys

from flwr_agent.cli.app import app
from flwr_agent.cli.run import RunFailed
from flwr_agent.config import RunConfig
from flwr_agent.errors import AgentError


def main() -> None:
    """Run a command; an error raised on purpose is one line on stderr: exit code 1 of a failed run, 2 of bad input."""
    try:
        app(obj=_load_strategy)
    except AgentError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1 if isinstance(error, RunFailed) else 2)


def _load_strategy(config: RunConfig) -> object:
    import strategies

    return strategies.load(config)


if __name__ == "__main__":
    main()
