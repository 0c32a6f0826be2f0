"""What is said before the first request of a run: all that will leave a client, and what privacy is promised."""

from __future__ import annotations

import logging
from pathlib import Path

from flwr_agent import manifest
from flwr_agent.config import RunConfig
from flwr_agent.requests import Arrays
from strategies import RoundStrategy

logger = logging.getLogger("flwr.agent")


def announce(folder: Path, config: RunConfig, strategy: RoundStrategy, arrays: Arrays) -> None:
    """Log the manifest's headline and write all of it to the run folder."""
    shapes = {name: values.shape for name, values in arrays.items()}
    lines = manifest.lines(shapes, config.strategy.compression)
    if strategy.privacy is not None:
        spent, rounds = strategy.privacy.spent(config.federation.rounds), config.federation.rounds
        lines.insert(1, f"the weights alone are private: epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g} ")
        lines[1] += f"after {rounds} rounds; numbers, and who answered, are outside it"
    if config.evaluation.where in ("client", "sites"):
        lines += manifest.evaluation_lines(config.evaluation.tasks)
    (folder / manifest.FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    logger.info("%s (in full: %s)", lines[0], folder / manifest.FILE)
