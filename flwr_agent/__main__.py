"""`python -m flwr_agent`: the one place that may import every package."""

from __future__ import annotations

import sys

from flwr_agent.cli.app import app
from flwr_agent.errors import AgentError


def main() -> None:
    """Run a command; an error raised on purpose is one line on stderr and exit code 2."""
    try:
        app()
    except AgentError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
