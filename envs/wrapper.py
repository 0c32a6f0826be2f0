"""An adapter around another one; a subclass changes what it is there to change."""

from __future__ import annotations

from collections.abc import Sequence

from envs.base import Env, EnvAdapter, Task, View


class Wrapper:
    """Everything as the inner adapter has it."""

    def __init__(self, inner: EnvAdapter):
        self.inner = inner
        self.name, self.version = inner.name, inner.version

    def tasks(self, split: str) -> Sequence[Task]:
        """The inner adapter's."""
        return self.inner.tasks(split)

    def system_prompt(self) -> str:
        """The inner adapter's."""
        return self.inner.system_prompt()

    def render(self, view: View) -> str:
        """The inner adapter's."""
        return self.inner.render(view)

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The inner adapter's."""
        return self.inner.parse_action(model_text)

    def make(self) -> Env:
        """The inner adapter's."""
        return self.inner.make()

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The inner adapter's."""
        return self.inner.oracle(task)

    def fingerprint(self) -> str:
        """The inner adapter's."""
        return self.inner.fingerprint()
