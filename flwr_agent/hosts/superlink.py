"""A SuperLink that runs, ours or somebody else's, and how to speak to it through Flower's own command."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr_agent.errors import AgentError
from flwr_agent.hosts.launched import Where
from flwr_agent.rl import launch

CONNECTION = "own"
"""Name of the one connection in a Flower home of ours."""
FORGOTTEN = "finished:forgotten"
"""Status of a run that its SuperLink does not know."""
_UNKNOWN = "Run ID not found"


class LaunchError(AgentError, RuntimeError):
    """Flower did not start or did not accept the run; carries the end of its log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuperLink:
    """Runs are submitted here, followed and stopped.

    Example:
        >>> link = connect(home, "superlink.example.org:8000", root_certificates=Path("ca.crt"))
        >>> link.status(link.submit(app, {"seed": 1}))
        'pending'
    """

    connection: str
    """Name of the connection in the Flower configuration of `env`."""
    cwd: Path
    """A folder of ours, for files that commands read."""
    env: Mapping[str, str]

    def submit(self, app: Path, overrides: Mapping[str, bool | int | float | str], *options: str) -> int:
        """Start the app in folder `app` with these run-config overrides; returns the run id.

        Args:
            app: folder with the app's pyproject.toml.
            overrides: dotted key -> value.
            options: further options of `flwr run`, such as the federation's.
        """
        config = self.cwd / "run.toml"
        config.write_text(
            "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in overrides.items()),
            encoding="utf-8",
        )
        return int(self._ask("run", str(app), self.connection, "--run-config", str(config), *options)["run-id"])

    def status(self, run_id: int) -> str:
        """`pending`, `starting`, `running`, `finished:completed`, `finished:failed`, `finished:stopped` or `FORGOTTEN`."""
        return str(self._run(run_id)["status"])

    def details(self, run_id: int) -> str:
        """What Flower has to say about how a run ended, often nothing."""
        return str(self._run(run_id)["status-details"] or "")

    def stop(self, run_id: int) -> None:
        """Ask for the end of a run; clients finish what they are at."""
        self._ask("stop", str(run_id), self.connection)

    def register(self, public_key: Path) -> None:
        """Let the SuperNode with this key join."""
        self._ask("supernode", "register", str(public_key), self.connection)

    @contextmanager
    def log(self, run_id: int, path: Path) -> Iterator[launch.Process]:
        """Append the run's log to `path` as it grows, by a process that ends with the run."""
        command = launch.tool("flwr", "log", str(run_id), self.connection, "--stream")
        with launch.supervised(command, self.cwd, self.env, path) as process:
            yield process

    def _run(self, run_id: int) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._ask("ls", self.connection, "--run-id", str(run_id))["runs"][0]
        except LaunchError as error:
            if _UNKNOWN not in str(error):
                raise
            details = "its SuperLink knows nothing of it: one without a database forgets its runs when it ends"
            return {"status": FORGOTTEN, "status-details": details}
        return found

    def _ask(self, *arguments: str) -> dict[str, Any]:
        code, out, err = launch.answer(launch.tool("flwr", *arguments, "--format", "json"), self.cwd, self.env)
        try:
            answer: dict[str, Any] = json.loads(out)
        except json.JSONDecodeError:
            answer = {}
        if code or not answer.get("success"):
            reason = answer.get("error-message") or out + err
            raise LaunchError(f"flwr {arguments[0]} failed: {' '.join(str(reason).split())}")
        return answer


def connect(
    home: Path, target: str, *, root_certificates: Path | None = None, insecure: bool = False, threads: int = 1
) -> SuperLink:
    """Speak to a SuperLink that runs already; whether it answers shows at the first question.

    Args:
        home: folder of ours for the time of the connection.
        target: `HOST:PORT`, or the name of a connection in the user's Flower configuration.
        root_certificates: certificate of the authority that signed the SuperLink's; None trusts those of the system.
        insecure: without TLS, for a loopback address.
        threads: CPU threads of what is started here.
    """
    if ":" not in target:
        return SuperLink(connection=target, cwd=home, env=launch.child_env(None, threads=threads))
    trust = f"root-certificates = {json.dumps(str(root_certificates.resolve()))}\n" if root_certificates else ""
    trust += "insecure = true\n" if insecure else ""
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{target}"\n{trust}',
        encoding="utf-8",
    )
    return SuperLink(connection=CONNECTION, cwd=home, env=launch.child_env(home, threads=threads))


@contextmanager
def reached(where: Where) -> Iterator[SuperLink]:
    """Speak to the SuperLink that `where` names while the block runs."""
    with tempfile.TemporaryDirectory(prefix="fl-", ignore_cleanup_errors=True) as home:
        root = Path(where.root_certificates) if where.root_certificates else None
        yield connect(Path(home), where.superlink, root_certificates=root)
