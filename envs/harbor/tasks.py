"""Finds the task directories of a folder and reads what they say.

Layout: `DATA/SPLIT/TASK/` with splits `train`, `val`, `demo`; or `DATA/TASK/`, where a fixed shuffle deals the splits.
A task directory holds `task.toml`, `instruction.md`, `environment/`, `tests/test.sh` and perhaps `solution/solve.sh`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envs.harbor import schema
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.seeds import seed_for

SPLITS = ("train", "val", "demo")
_DEAL = ("train", "val", "train", "demo", "train")
"""Splits that the tasks of an undivided folder get in turn, in shuffled order."""
INSTRUCTION = "instruction.md"

MEMORY_MB = 1024
STORAGE_MB = 256
VERIFIER_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task directory says, defaults filled in."""

    folder: Path
    """The task directory."""
    name: str
    """`[task] name`, else the directory's name; the id of the task."""
    instruction: str
    """The task in words."""
    category: str
    """`[metadata] category`, else `none`."""
    image: str | None = None
    """A container image that takes the place of the Dockerfile."""
    workdir: str | None = None
    """Where commands start; None is the Dockerfile's own."""
    user: str | None = None
    """Who the agent is inside a container; a sandbox without containers has one user alone."""
    cpus: float = 1.0
    """Cores a container may use."""
    memory_mb: int = MEMORY_MB
    """Memory a command may use."""
    storage_mb: int = STORAGE_MB
    """Disk space the episode's folders may take."""
    timeout_s: float | None = None
    """Seconds a command may take at most, where the task is stricter than the environment."""
    verifier_timeout_s: float = VERIFIER_TIMEOUT_S
    """Seconds `test.sh` may take."""
    env: Mapping[str, str] | None = None
    """Environment variables of every command."""
    verifier_env: Mapping[str, str] | None = None
    """Further environment variables of `test.sh`."""

    @property
    def dockerfile(self) -> Path:
        """Where the Dockerfile lies, if the task has one."""
        return self.folder / "environment" / "Dockerfile"

    def solution(self) -> str | None:
        """The commands of `solution/solve.sh`, if the script needs nothing beside it."""
        script = self.folder / "solution" / "solve.sh"
        if not script.is_file() or len(list(script.parent.iterdir())) > 1:
            return None
        if schema.read(self.folder / "task.toml").get("solution", {}).get("env"):
            return None
        lines = schema.text(script).splitlines()
        commands = "\n".join(line for line in lines if line.strip() and not line.startswith("#"))
        return None if "/solution" in commands else commands


def specs(data: Path, split: str) -> dict[str, TaskSpec]:
    """Task id -> what its directory says, sorted by id.

    Raises:
        ConfigError: no such split.
        DataError: a task directory is malformed, or two tasks share a name.
    """
    if split not in SPLITS:
        raise ConfigError("split", split, "Harbor tasks have no such split", allowed=SPLITS)
    return {name: spec for name, (found, spec) in _all(data).items() if found == split}


def digest(data: Path) -> str:
    """SHA-256 over the names and contents of all files below a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        total.update(path.relative_to(data).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def load(folder: Path) -> TaskSpec:
    """What one task directory says.

    Raises:
        DataError: names the file and the field.
    """
    content = schema.read(folder / "task.toml")
    schema.present(folder / "tests" / "test.sh")
    environment, verifier = content.get("environment", {}), content.get("verifier", {})
    agent = content.get("agent", {})
    category = content.get("metadata", {}).get("category", "none")
    user = agent.get("user")
    return TaskSpec(
        folder=folder,
        name=content.get("task", {}).get("name", folder.name),
        instruction=_instruction(folder / INSTRUCTION),
        category=str(category),
        image=environment.get("docker_image"),
        workdir=environment.get("workdir"),
        user=None if user is None else str(user),
        cpus=environment.get("cpus", 1.0),
        memory_mb=environment.get("memory_mb", MEMORY_MB),
        storage_mb=environment.get("storage_mb", STORAGE_MB),
        timeout_s=agent.get("timeout_sec"),
        verifier_timeout_s=verifier.get("timeout_sec", VERIFIER_TIMEOUT_S),
        env=environment.get("env"),
        verifier_env=verifier.get("env"),
    )


def _instruction(file: Path) -> str:
    text = schema.text(file).strip()
    if not text:
        raise DataError(file, "content", "is empty; it is what the agent is told to do")
    return text


@functools.cache
def _all(data: Path) -> dict[str, tuple[str, TaskSpec]]:
    """Task id -> (split, spec) of every task directory of a folder."""
    found: dict[str, tuple[str, TaskSpec]] = {}
    for split, folder in _directories(data):
        spec = load(folder)
        if spec.name in found:
            other = found[spec.name][1].folder
            raise DataError(folder / "task.toml", "task.name", f"{spec.name!r} is also the name of {other}")
        found[spec.name] = (split, spec)
    return dict(sorted(found.items()))


def _directories(data: Path) -> list[tuple[str, Path]]:
    """(split, task directory) of every task below a folder."""
    divided = [(split, folder) for split in SPLITS for folder in sorted(_of_tasks(data / split))]
    alone = sorted(_of_tasks(data), key=lambda folder: seed_for("harbor", folder.name))
    if divided and alone:
        raise DataError(alone[0], "place", f"lies beside the splits {', '.join(SPLITS)}; move it into one of them")
    if not (divided or alone):
        raise DataError(data, "task.toml", "no task directory lies here; give the folder above task directories")
    return divided or [(_DEAL[number % len(_DEAL)], folder) for number, folder in enumerate(alone)]


def _of_tasks(folder: Path) -> list[Path]:
    """The folders in a folder that are meant as tasks: one without its `task.toml` is refused when it is read."""
    return [place for place in folder.glob("*") if any((place / name).exists() for name in ("task.toml", INSTRUCTION))]
