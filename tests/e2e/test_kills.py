"""Every process of a federation is killed at every stage of a round; each round ends in the bits of a run left alone.

A run has a kill in every round but its first. `pytest -m e2e tests/e2e/test_kills.py` plays the eight recoveries that
differ in one run, with `--all-kills` the whole matrix, a run for each process; both end with a table.
"""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import holding
import psutil
import pytest
import runs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2400)]
TARGETS = ("ServerApp", "ClientApp", "worker", "SuperNode", "SuperLink")
POINTS = {
    "before train": "asking",
    "during train": "training",
    "during reply": "answering",
    "during aggregation": "aggregating",
    "during checkpoint": "saving",
    "during evaluation": "evaluating",
}
"""Stage -> where the run is held."""
OF_SERVER = ("asking", "aggregating", "saving")
"""Points in the ServerApp; the others are in a worker."""
FIRST = 2
SETTINGS = (
    "federation.min_clients=2", "federation.connect_timeout_s=600", "federation.round_timeout_s=900",
    "evaluation.where=client", "evaluation.every=1", "report.page=false",
)  # fmt: skip
BY_ITSELF, AGAIN, NOBODY = "goes on by itself", "stops; the same command resumes it", "not alive then"


@dataclass(frozen=True)
class Kill:
    """One cell of the matrix."""

    target: str
    stage: str

    @property
    def point(self) -> str:
        """Where the run is held; a client's processes are alive at `before train` once they are asked."""
        is_of_client = self.target in ("ClientApp", "worker")
        return "asked" if is_of_client and self.stage == "before train" else POINTS[self.stage]


ROWS = {target: [Kill(target, stage) for stage in POINTS] for target in TARGETS}
DISTINCT = [
    Kill("ServerApp", "during aggregation"),
    Kill("ServerApp", "during checkpoint"),
    Kill("ServerApp", "during evaluation"),
    Kill("ClientApp", "during train"),
    Kill("worker", "during reply"),
    Kill("worker", "during evaluation"),
    Kill("SuperNode", "during train"),
    Kill("SuperLink", "during reply"),
]
"""The recoveries that differ; the other kills end in one of these ways."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kills" in metafunc.fixturenames:
        played = ROWS if metafunc.config.getoption("--all-kills") else {"distinct": DISTINCT}
        metafunc.parametrize("kills", list(played.values()), ids=list(played))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return runs.policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def undisturbed(policy, flower_messages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.play(folder, policy, *SETTINGS, "evaluation.where=server", f"federation.rounds={FIRST + len(DISTINCT) - 1}")
    return folder


def facts(folder: Path, round_: int) -> tuple:
    """What a round with a kill must share with one left alone, each exactly once: model, clients in it, scores."""
    of_round = [line for line in runs.lines(folder) if line.get("round") == round_]
    return (
        [line["digest"] for line in of_round if line["kind"] == "round"],
        [line["client_id"] for line in of_round if line.get("status") == "accepted"],
        [line["outcomes"] for line in of_round if line["kind"] == "evaluation"],
    )


class Disturbed:
    """A run whose processes are killed, and which is started again whenever it stops."""

    def __init__(self, home: Path, policy: Path, kills: Sequence[Kill]) -> None:
        self.folder, self._home, self._policy, self._gate = home / "run", home, policy, home / "gate"
        self._rounds = FIRST + len(kills) - 1
        self._gate.mkdir()
        for round_, kill in enumerate(kills, FIRST):
            (self._gate / f"{round_}-{kill.point}").touch()
        self._process = self._start()

    def survive(self, round_: int, kill: Kill) -> str:
        """Kill when the round gets there and see it through to its score; says how."""
        reached = self._gate / "reached"
        self._wait_for(reached.exists)
        assert self._process.poll() is None, runs.finish(self._process)
        victim = find(psutil.Process(self._process.pid), kill, int(reached.read_text()))
        if victim is not None:
            victim.send_signal(signal.SIGKILL)
        reached.unlink()
        self._wait_for(lambda: facts(self.folder, round_)[-1])
        if self._process.poll() in (None, 0):
            return BY_ITSELF if victim else NOBODY
        said = self._process.communicate()[1]
        assert said.startswith("error: run failed: "), said
        assert said.count("\n") == 1, said
        self._process = self._start()
        self._wait_for(lambda: facts(self.folder, round_)[-1])
        return AGAIN

    def finish(self) -> None:
        """See it through to its end."""
        code, out, err = runs.finish(self._process)
        assert code == 0, out + err

    def _start(self) -> subprocess.Popen[str]:
        held = (f"worker.python={holding.worker_python(self._gate)}", "strategy.name=holding:Held")
        settings = (*SETTINGS, f"federation.rounds={self._rounds}", "worker.mode=process", "--deployment", *held)
        return runs.start(self.folder, self._policy, *settings, modules=Path(holding.__file__).parent)

    def _wait_for(self, condition) -> None:
        runs.wait_for(lambda: condition() or self._process.poll() is not None)


def find(command: psutil.Process, kill: Kill, held: int) -> psutil.Process | None:
    """The process to kill: on the client's side that of the held worker, or of client 1 while the server is held."""
    if kill.target in ("ServerApp", "SuperLink"):
        name = {"ServerApp": "flwr-serverapp", "SuperLink": "flower-superlink"}[kill.target]
        return next(programs(command, name))
    workers = {p: int(words(p)[-1]) for p in psutil.process_iter() if "flwr_agent.rl.remote" in words(p)}
    nodes = {p: {p.pid, *(c.pid for c in p.children())} for p in programs(command, "flower-supernode")}
    if kill.point in OF_SERVER:
        node = next(p for p in nodes if f"partition-id={holding.CLIENT} " in " ".join(words(p)))
        worker = next(p for p, owner in workers.items() if owner in nodes[node])
    else:
        worker = psutil.Process(held)
        node = next(p for p, family in nodes.items() if workers[worker] in family)
    if kill.target != "ClientApp":
        return worker if kill.target == "worker" else node
    if kill.point in OF_SERVER:
        runs.wait_for(lambda: not list(programs(node, "flwr-clientapp")))
    return next(programs(node, "flwr-clientapp"), None)


def programs(parent: psutil.Process, name: str) -> Iterator[psutil.Process]:
    """Processes of a program below another one; their supervisors name it too."""
    for process in parent.children(recursive=True):
        found = words(process)
        if any(Path(word).name == name for word in found) and not any(w.endswith("supervise.py") for w in found):
            yield process


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_run_whose_processes_are_killed_ends_every_round_in_the_same_bits(
    kills, policy, undisturbed, record_property, tmp_path
):
    run, ends = Disturbed(tmp_path, policy, kills), {}
    for round_, kill in enumerate(kills, FIRST):
        ends[kill] = run.survive(round_, kill)
        assert facts(run.folder, round_) == facts(undisturbed, round_), (kill, ends[kill])
        if (ends[kill], kill.stage) == (AGAIN, "during checkpoint"):
            assert (run.folder / "_stale" / f"round-{round_:05d}.tmp.1").is_dir()
    run.finish()
    assert runs.digests(run.folder) == runs.digests(undisturbed)[: 1 + len(kills)]
    for line in table(kills, ends):
        record_property("line", line)


def table(kills: Sequence[Kill], ends: dict[Kill, str]) -> list[str]:
    """How the kills ended, a row for a process at every stage, or a row for each kill."""
    if kills in ROWS.values():
        return [
            f"| killed | {' | '.join(POINTS)} |",
            f"|---|{'---|' * len(POINTS)}",
            f"| {kills[0].target} | {' | '.join(ends[kill] for kill in kills)} |",
        ]
    return ["| killed | |", "|---|---|", *(f"| {kill.target} {kill.stage} | {ends[kill]} |" for kill in kills)]
