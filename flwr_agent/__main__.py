"""`python -m flwr_agent`: the one place that may import every package."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flwr_agent.cli.app import app
from flwr_agent.cli.parts import Parts
from flwr_agent.config import RunConfig
from flwr_agent.errors import FULL, AgentError
from flwr_agent.requests import Arrays
from flwr_agent.validate import Strategy

TRAINING = ("torch", "transformers", "tokenizers", "trl", "accelerate", "datasets")
"""Top-level modules of the extra `train`."""


def main() -> None:
    """Run a command; an error raised on purpose, or by a path, is one line on stderr, with its exit code.

    Modules of the user's own are found in the working directory, after all that is installed.
    """
    sys.path.append(str(Path.cwd()))
    try:
        parts = Parts(load_strategy=_load_strategy, load_model=_load_model, rebuild=_rebuild)
        sys.exit(app(obj=parts, standalone_mode=False))
    except click.UsageError as error:
        _say(error)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit("error: aborted")
    except AgentError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno in FULL:
            place = f"{error.filename}: " if error.filename else ""
            sys.stderr.write(f"error: {place}{error.strerror}; make room and give the command again\n")
            sys.exit(1)
        if error.filename is None:
            raise
        sys.stderr.write(f"error: {error.filename}: {error.strerror}; give a place that can be read and written\n")
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in TRAINING:
            raise
        sys.stderr.write(f"error: {error.name} is not installed; training needs `pip install -e '.[train]'`\n")
        sys.exit(1)


def _say(error: click.UsageError) -> None:
    """What is wrong with the arguments; where help has been shown in its place, nothing is left to say."""
    if message := " ".join(error.format_message().split()):
        help_ = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        sys.stderr.write(f"error: {message}{help_}\n")


def _load_strategy(config: RunConfig) -> Strategy:
    import strategies

    return strategies.load(config)


def _rebuild(run: Path) -> list[Path]:
    from server_app.rebuild import rebuild

    return rebuild(run)


def _load_model(run: Path, round_: int | None) -> tuple[int, Arrays, str]:
    from server_app import checkpoint

    state = checkpoint.kept(run, round_)
    return state.round, state.arrays, state.base_digest


if __name__ == "__main__":
    main()
