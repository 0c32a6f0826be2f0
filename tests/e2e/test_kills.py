"""Every process of a federation is killed at every stage of a round; each run ends in the bits of one left alone.

`pytest tests/e2e/test_kills.py --all-kills -s` plays the whole matrix and prints the table of docs/reliability.md.
"""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import holding
import psutil
import pytest
import runs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
SETTINGS = (
    *(
        "--deployment",
        "federation.rounds=2",
        "federation.min_clients=2",
        "federation.connect_timeout_s=600",
        "evaluation.where=client",
    ),
    *("evaluation.every=2", "strategy.name=holding:Held", "worker.mode=process"),
)
STAGES = (
    "before train",
    "during train",
    "during reply",
    "during aggregation",
    "during checkpoint",
    "during evaluation",
)
TARGETS = ("ServerApp", "ClientApp", "worker", "SuperNode", "SuperLink")
DISTINCT = {
    ("ServerApp", "during aggregation"),
    ("ServerApp", "during checkpoint"),
    ("ServerApp", "during evaluation"),
    ("ClientApp", "during train"),
    ("worker", "during reply"),
    ("worker", "during evaluation"),
    ("SuperNode", "during train"),
    ("SuperLink", "during reply"),
}
"""The recoveries that differ; the other kills end in one of these ways."""
BY_ITSELF, AGAIN, NOBODY = "goes on by itself", "stops; the same command resumes it", "not alive at this stage"


@dataclass(frozen=True)
class Kill:
    """One cell."""

    target: str
    stage: str

    @property
    def point(self) -> str:
        """Where the run is held."""
        if self.stage == "before train":
            return "asked" if self.target in ("ClientApp", "worker") else "asking"
        return {
            "during train": "training",
            "during reply": "answering",
            "during aggregation": "aggregating",
            "during checkpoint": "saving",
            "during evaluation": "evaluating",
        }[self.stage]


CELLS = [Kill(target, stage) for target in TARGETS for stage in STAGES]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return runs.policy(tmp_path_factory.mktemp("policy"))


def start(home: Path, policy: Path) -> subprocess.Popen:
    """A run under `home`, which also holds its gate."""
    gate = home / "gate"
    gate.mkdir(exist_ok=True)
    python = holding.worker_python(gate)
    modules = Path(holding.__file__).parent
    return runs.start(home / "run", policy, *SETTINGS, f"worker.python={python}", modules=modules)


@pytest.fixture(scope="module")
def undisturbed(policy, tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    code, out, err = runs.finish(start(home, policy))
    assert code == 0, out + err
    return facts(home / "run")


def facts(folder: Path) -> tuple:
    """Models, accepted clients and scores: what a disturbed run must share with one left alone, each exactly once."""
    accepted = [(x["round"], x["client_id"]) for x in runs.lines(folder, "client") if x["status"] == "accepted"]
    scores = [(x["round"], x["outcomes"]) for x in runs.lines(folder, "evaluation")]
    return runs.digests(folder), accepted, scores


def find(command: psutil.Process, target: str) -> psutil.Process | None:
    """The process to kill; of two SuperNodes that of the held client, of two workers and ClientApps theirs."""
    family = command.children(recursive=True)
    if target in ("ServerApp", "SuperLink"):
        name = {"ServerApp": "flwr-serverapp", "SuperLink": "flower-superlink"}[target]
        return next((process for process in family if is_program(process, name)), None)
    node = next(p for p in family if is_program(p, "flower-supernode") and is_of_client(p))
    if target == "SuperNode":
        return node
    if target == "ClientApp":
        return next((p for p in node.children(recursive=True) if is_program(p, "flwr-clientapp")), None)
    owner = str(node.pid)
    return next((p for p in psutil.process_iter() if is_worker_of(p, owner)), None)


def is_program(process: psutil.Process, name: str) -> bool:
    words = cmdline(process)
    return any(Path(word).name == name for word in words) and not any(word.endswith("supervise.py") for word in words)


def is_of_client(node: psutil.Process) -> bool:
    return any(f"partition-id={holding.CLIENT} " in f"{word} " for word in cmdline(node))


def is_worker_of(process: psutil.Process, owner: str) -> bool:
    words = cmdline(process)
    return "flwr_agent.rl.remote" in words and words[-1] == owner


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def disturb(home: Path, policy: Path, kill: Kill) -> tuple[str, str]:
    """Play a run, kill one process at one stage, resume if need be; how it ended, and its own words."""
    gate = home / "gate"
    gate.mkdir()
    (gate / "point").write_text(kill.point)
    process = start(home, policy)
    runs.wait_for(lambda: (gate / "reached").exists() or process.poll() is not None)
    assert process.poll() is None, runs.finish(process)
    victim = find(psutil.Process(process.pid), kill.target)
    if victim is not None:
        victim.send_signal(signal.SIGKILL)
    (gate / "go").touch()
    code, _, err = runs.finish(process)
    if victim is None:
        assert code == 0, err
        return NOBODY, ""
    if code == 0:
        return BY_ITSELF, ""
    assert err.count("\n") == 1, err
    again, _, more = runs.finish(start(home, policy))
    assert again == 0, more
    return AGAIN, err.strip()


@pytest.fixture(scope="module")
def table():
    """Cells as they end, printed when all are done."""
    found: dict[Kill, str] = {}
    yield found
    rows = [f"| killed | {' | '.join(STAGES)} |", f"|---|{'---|' * len(STAGES)}"]
    rows += [f"| {t} | {' | '.join(found.get(Kill(t, s), '') for s in STAGES)} |" for t in TARGETS]
    sys.stdout.write("\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize("kill", CELLS, ids=lambda kill: f"{kill.target}-{kill.stage}".replace(" ", "-"))
def test_a_run_whose_process_was_killed_ends_in_the_same_bits(kill, policy, undisturbed, table, request, tmp_path):
    if (kill.target, kill.stage) not in DISTINCT and not request.config.getoption("--all-kills"):
        pytest.skip("one of the eight distinct recoveries; pytest --all-kills plays all")
    how, words = disturb(tmp_path, policy, kill)
    table[kill] = how
    assert facts(tmp_path / "run") == undisturbed, words
    if how == AGAIN and kill.stage == "during checkpoint":
        assert [path.name for path in (tmp_path / "run" / "_stale").iterdir()] == ["round-00002.tmp.1"]
