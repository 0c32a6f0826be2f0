"""Where PPO's critic starts: a trained one that was named, the one beside a trained policy, or a fresh one.

A critic is known by its value head among the tensor names of safetensors headers; nothing heavy is imported.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from flwr_agent import policy as policies
from flwr_agent.arrays import CRITIC
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, DataError

logger = logging.getLogger("flwr.agent")
KEY = "model.critic_path"
HEADS = ("score.weight", "classifier.weight")
"""Names that transformers gives the head of a token classifier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The critic of round 0."""

    init: str
    """`explicit`, `auto-sibling` or `fresh-value-head`."""
    path: str | None = None
    """Its folder, if it is a trained one."""


def find(config: RunConfig) -> Start:
    """The critic that a run starts from: explicit path > the one beside the policy > a fresh head.

    Raises:
        ConfigError: the named folder holds no critic, or one of another width than the policy.
        DataError: a file of it is damaged.
    """
    wanted, policy = config.model.critic_path, config.model.path
    if wanted not in ("auto", "fresh"):
        return Start(init="explicit", path=_checked(Path(wanted).expanduser(), policy))
    if wanted == "auto" and (sibling := _sibling(Path(policy).expanduser())):
        return Start(init="auto-sibling", path=_checked(sibling, policy))
    return Start(init="fresh-value-head")


def _sibling(policy: Path) -> Path | None:
    """The folder with the critic of a trained policy; what lies beside it and cannot be read need not be one."""
    if not policy.is_dir():
        return None
    for folder in (policy / "critic", policy.parent / "critic"):
        if _head(shapes(folder)):
            return folder
    try:
        return policy.parent if _head(shapes(policy.parent)) else None
    except DataError as error:
        logger.warning("%s is no critic for this policy: %s", policy.parent, error)
        return None


def shapes(folder: Path) -> dict[str, tuple[Path, list[int]]]:
    """Tensor name -> (file, shape) of a model folder, or of the critic in a checkpoint of a run.

    Raises:
        DataError: a file is damaged.
    """
    found: dict[str, tuple[Path, list[int]]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as tensors:
                found |= {name: (file, tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise DataError(file, "safetensors header", f"{error}; copy the model again") from error
    inside = {name.removeprefix(CRITIC): where for name, where in found.items() if name.startswith(CRITIC)}
    return inside or found


def _head(found: dict[str, tuple[Path, list[int]]]) -> list[int] | None:
    """Shape of the value head: one label."""
    heads = [shape for name, (_, shape) in found.items() if name in HEADS]
    return heads[0] if heads and len(heads[0]) == 2 and heads[0][0] == 1 else None


def _checked(folder: Path, policy: str) -> str:
    if not folder.is_dir():
        what = "is a file; give the folder that holds it" if folder.is_file() else "no such folder; give a critic's"
        raise ConfigError(KEY, str(folder), f"{what}, `auto` or `fresh`")
    found = shapes(folder)
    if not found:
        raise ConfigError(KEY, str(folder), "the folder has no weights (*.safetensors); give a critic's")
    if (head := _head(found)) is None:
        fix = f"no value head (one-label {' or '.join(HEADS)}) among its tensors: this is a policy; give a critic"
        raise ConfigError(KEY, str(folder), fix)
    if (width := policies.width(policy)) not in (None, head[1]):
        fix = f"the critic is {head[1]} wide, the policy {width}; give one made from this policy's architecture"
        raise ConfigError(KEY, str(folder), fix)
    return str(folder)
