"""The adapter of Harbor tasks: a folder of task directories, or the tasks shipped with the package."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence

from envs.base import Task, Variant, View
from envs.harbor import bubblewrap, docker, prompt, shipped, tasks
from envs.harbor.episode import SUBMIT, Episode
from envs.harbor.sandbox import Sandbox
from envs.harbor.tasks import SPLITS, TaskSpec
from envs.places import folder
from envs.prompts import known
from envs.variant import refuse
from flwr_agent.errors import ConfigError

SANDBOXES = ("bwrap", "docker")


class Harbor:
    """Task directories of the Harbor format, each episode in a sandbox without network.

    Example:
        >>> env = Harbor(style="compact")  # doctest: +SKIP
        >>> env.oracle(env.tasks("val")[0])  # doctest: +SKIP
        ['grep -c ERROR log.txt > answer.txt', 'submit']
    """

    name = "harbor"
    version = "1"

    def __init__(  # noqa: PLR0913  one argument a setting
        self,
        *,
        data_path: str = "none",
        sandbox: str = "bwrap",
        max_commands: int = 15,
        command_timeout_s: float = 30.0,
        threshold: float = 1.0,
        style: str = "paper",
        variant: Variant | None = None,
    ):
        refuse(self.name, variant)
        if sandbox not in SANDBOXES:
            raise ConfigError("env.sandbox", sandbox, "no such sandbox", allowed=SANDBOXES)
        (bubblewrap if sandbox == "bwrap" else docker).check()
        self._data = (
            shipped.folder() if data_path == "none" else folder(data_path, "name one of task directories, or none")
        )
        self._sandbox = sandbox
        self._max_commands = max_commands
        self._command_timeout_s = command_timeout_s
        self._threshold = threshold
        self._style = known(style)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `val` or `demo`, by name; `meta` holds the `category`.

        Raises:
            DataError: a task directory is malformed, or asks for more than the sandbox can give.
        """
        found = tasks.specs(self._data, split)
        if self._sandbox == "bwrap":
            for spec in found.values():
                bubblewrap.recipe_of(spec)
        return tuple(Task(name, split, {"category": spec.category}) for name, spec in found.items())

    def system_prompt(self) -> str:
        """Role, rules and answer format."""
        return prompt.system_prompt()

    def render(self, view: View) -> str:
        """The user message of one turn."""
        return prompt.render(view, self._style)

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The command of an answer, its case kept, and whether the format held."""
        return prompt.parse_action(model_text, self._style)

    def make(self) -> Episode:
        """An episode with a sandbox of its own."""
        return Episode(self._specs, self._to_sandbox, max_commands=self._max_commands, threshold=self._threshold)

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The solution's script as one command, where it needs nothing beside it."""
        commands = self._specs[task.id].solution()
        return None if commands is None else [commands, SUBMIT]

    def fingerprint(self) -> str:
        """Digest of the task directories and of what counts as success."""
        parts = [self.name, self.version, self._max_commands, self._threshold, tasks.digest(self._data)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @functools.cached_property
    def _specs(self) -> dict[str, TaskSpec]:
        return {name: spec for split in SPLITS for name, spec in tasks.specs(self._data, split).items()}

    def _to_sandbox(self, spec: TaskSpec) -> Sandbox:
        kind = bubblewrap.Bubblewrap if self._sandbox == "bwrap" else docker.Docker
        return kind(spec, command_timeout_s=self._command_timeout_s)
