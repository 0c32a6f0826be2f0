"""`python -m flwr_agent`: the one place that may import every package."""

from __future__ import annotations

import sys

from flwr_agent.cli.app import app
from flwr_agent.config import RunConfig
from flwr_agent.errors import AgentError, ConfigError, DataError

TRAINING = ("torch", "transformers", "tokenizers", "trl", "accelerate", "datasets")
"""Top-level modules of the extra `train`."""


def main() -> None:
    """Run a command; an error raised on purpose is one line on stderr: exit code 2 for bad input, else 1."""
    try:
        app(obj=_load_strategy)
    except AgentError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, ConfigError | DataError) else 1)
    except ModuleNotFoundError as error:
        if error.name not in TRAINING:
            raise
        sys.stderr.write(f"error: {error.name} is not installed; training needs `pip install -e '.[train]'`\n")
        sys.exit(1)


def _load_strategy(config: RunConfig) -> object:
    import strategies

    return strategies.load(config)


if __name__ == "__main__":
    main()
