"""Whether this host is fit for a run, before it joins one: a finding for each thing that has stopped a host before."""

from __future__ import annotations

import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from flwr_agent import validate
from flwr_agent.config import RunConfig
from flwr_agent.hosts import network
from flwr_agent.hosts.finding import Finding, Verdict, checked
from flwr_agent.paths import IS_SOURCE, ROOT, code_hash
from flwr_agent.policy import check_policy
from flwr_agent.rl import launch

GIB = 2**30
FREE_SHARE = 0.5
"""Share of a GPU's memory below which somebody else is at work on it."""
CHECKPOINTS = 5
"""Models that a run folder holds at most: round 0, two rounds kept, one being written, one to spare."""
HANDOVERS = 2
"""Models in shared memory between a ClientApp and its worker: one each way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What this host is to do."""

    config: RunConfig
    model_bytes: int = 0
    """fp32 size of the model, 0 if it is not known here."""
    is_server: bool = False
    """Runs the SuperLink and its ServerApps; otherwise a site."""
    superlink: str = ""
    """`HOST:PORT` of the SuperLink to join, empty to leave it out."""
    root_certificates: Path | None = None
    """Certificate of the authority that signed the SuperLink's; None trusts those of the system."""
    key: Path | None = None
    """Private key of this host's SuperNode."""
    ports: Sequence[int] = field(default_factory=tuple)
    """Ports that processes of this host will listen on."""
    code: str = ""
    """Beginning of the code hash that the federation runs."""


def examine(host: Host) -> Iterator[Finding]:
    """Findings one by one, as they are made; nothing is changed on the host and nothing is loaded onto a GPU."""
    yield versions()
    yield code(host.code)
    yield gpu(host)
    yield inference(host.config)
    yield model(host.config)
    yield data(host.config)
    yield sandbox(host.config)
    yield from (network.port(number) for number in host.ports)
    yield from disk(host)
    if host.key:
        yield network.key(host.key)
    if host.superlink:
        yield from network.superlink(host.superlink, host.root_certificates)
    else:
        yield Finding("clock", Verdict.WARN, "not compared", "give --superlink HOST:PORT once it runs")


def versions() -> Finding:
    """Python and the packages that pyproject.toml asks for, with the extra `train`."""
    wrong = list(_wrong_versions(_requirements()))
    python = ".".join(map(str, sys.version_info[:3]))
    if wrong:
        return Finding(
            "versions", Verdict.FAIL, ", ".join(wrong), f"{sys.executable} -m pip install 'flwr-agent[train]'"
        )
    return Finding("versions", Verdict.OK, f"Python {python}, flwr {metadata.version('flwr')}, {_version('torch')}")


def code(expected: str) -> Finding:
    """Server and clients must run the same code; Flower brings it, but a worker's interpreter may have its own."""
    here = code_hash()
    if expected and not here.startswith(expected):
        return Finding("code", Verdict.FAIL, f"{here[:12]} here, {expected[:12]} there", "install the same flwr-agent")
    return Finding("code", Verdict.OK, here[:12])


def gpu(host: Host) -> Finding:
    """The devices that a client would use."""
    visible, rows = launch.visible_gpus(), _gpus()
    if not visible or not rows:
        if host.is_server:
            return Finding("gpu", Verdict.OK, "none, and a server needs none")
        verdict = Verdict.FAIL if host.config.rollout.engine == "vllm" else Verdict.WARN
        return Finding("gpu", verdict, "none for this user", "install the driver (see nvidia-smi), or train on the CPU")
    name, driver, free, total = rows[0]
    memory = f"{float(free) / 1024:.0f} of {float(total) / 1024:.0f} GiB free"
    found = f"{len(visible)} of {len(rows)} visible, {name}, driver {driver}, {memory}"
    if any(float(free) < FREE_SHARE * float(total) for _, _, free, total in rows):
        return Finding("gpu", Verdict.WARN, found, "another process holds memory; end it, or set CUDA_VISIBLE_DEVICES")
    return Finding("gpu", Verdict.OK, found)


def inference(config: RunConfig) -> Finding:
    """Whether vLLM is in the interpreter of the worker, where the run asks for it."""
    if config.rollout.engine != "vllm":
        return Finding("vllm", Verdict.OK, f"not needed (rollout.engine={config.rollout.engine})")
    python = sys.executable if config.worker.python == "same" else config.worker.python
    ask = "from importlib.metadata import version; print(version('vllm'))"
    try:
        status, out, _ = _output(python, "-c", ask)
    except OSError as error:
        return Finding(
            "vllm", Verdict.FAIL, f"worker.python={python}: {error.strerror}", "give the path of an interpreter"
        )
    if status:
        return Finding(
            "vllm", Verdict.FAIL, f"not installed for {python}", f"{python} -m pip install vllm (docs/engines.md)"
        )
    return Finding("vllm", Verdict.OK, f"{out.strip()} for {python}")


def model(config: RunConfig) -> Finding:
    """The model's folder."""
    return checked("model", config.model.path, lambda: check_policy(config))


def data(config: RunConfig) -> Finding:
    """The environment's tasks, every client's shard and world."""
    return checked("data", f"{config.env.name}, {config.partition.strategy}", lambda: validate.check_world(config))


def sandbox(config: RunConfig) -> Finding:
    """Where commands of the policy run, if they do."""
    if config.env.name != "harbor":
        return Finding("sandbox", Verdict.OK, f"not needed (env.name={config.env.name})")
    from envs.harbor import bubblewrap, docker

    kind = bubblewrap if config.env.sandbox == "bwrap" else docker
    return checked("sandbox", config.env.sandbox, kind.check)


def disk(host: Host) -> Iterator[Finding]:
    """Room for checkpoints, for what passes between processes, and for temporary files."""
    size = host.model_bytes
    if host.is_server:
        yield _room("disk", Path(host.config.output_dir), CHECKPOINTS * size, "set output_dir to a larger disk")
    yield _room("temporary files", Path(tempfile.gettempdir()), GIB, "set TMPDIR to a larger disk")
    if (memory := Path("/dev/shm")).is_dir():  # noqa: S108
        yield _room("shared memory", memory, HANDOVERS * size, "mount /dev/shm larger (docker: --shm-size)")


def _gpus() -> list[list[str]]:
    """Name, driver, free and total MiB of every device of the machine."""
    query = "--query-gpu=name,driver_version,memory.free,memory.total"
    try:
        code, out, _ = _output("nvidia-smi", query, "--format=csv,noheader,nounits")
    except OSError:
        return []
    return [] if code else [[part.strip() for part in line.split(",")] for line in out.splitlines()]


def _output(*command: str) -> tuple[int, str, str]:
    return launch.answer(list(command), ROOT, launch.child_env(None, threads=1))


def _room(name: str, path: Path, needed: int, fix: str) -> Finding:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / GIB:.1f} GiB free in {existing}"
    if free < needed:
        return Finding(name, Verdict.FAIL, f"{found}, {needed / GIB:.1f} needed", fix)
    return Finding(name, Verdict.OK, found)


def _requirements() -> list[str]:
    if IS_SOURCE:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return [*project["dependencies"], *project["optional-dependencies"]["train"]]
    return metadata.requires("flwr-agent") or []


def _wrong_versions(texts: Iterable[str]) -> Iterator[str]:
    from packaging.requirements import Requirement

    for text in texts:
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": "train"}):
            continue
        try:
            here = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            yield f"{wanted.name} is not installed"
            continue
        if not wanted.specifier.contains(here, prereleases=True):
            yield f"{wanted.name} {here} is not {wanted.specifier}"


def _version(name: str) -> str:
    return f"{name} {metadata.version(name)}"
