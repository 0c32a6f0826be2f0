"""The tasks shipped with the package: small files to read, change and sort, written out in Harbor's own format.

An app bundle holds no scripts and no Dockerfiles, so the directories are generated, once a machine, into a cache.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import random
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flwr_agent.seeds import seed_for

NUM_TASKS = {"train": 5, "val": 2, "demo": 1}
"""Tasks of every category in each split."""

_NAMES = ("ada", "bela", "cleo", "dina", "edda", "finn", "gita", "hugo", "iris", "jona", "kira", "lena", "milo")
_THINGS = ("anchor", "barrel", "drum", "engine", "flask", "gear", "hammer", "kettle", "lamp", "oven", "rope", "wax")

_TOML = """schema_version = "1.4"

[task]
name = "shipped/{name}"

[metadata]
category = "{category}"
difficulty = "easy"

[agent]
timeout_sec = 30.0

[verifier]
timeout_sec = 30.0

[environment]
memory_mb = 1024
storage_mb = 64
network_mode = "no-network"
"""
_CHECKS = """#!/bin/bash
# A link is no answer, wherever it leads.
reads() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(head -c 100000 "$1")" = "$2" ]; }
"""
_FILES_AT_START = "files"
"""Folder of the build context that is copied to the working directory."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task before it is written out."""

    instruction: str
    """The task in words."""
    files: Mapping[str, str]
    """Path in the working directory -> content at the start."""
    solve: str
    """One command line that solves it."""
    conditions: tuple[str, ...]
    """Bash conditions, none of which holds at the start; one decides, of several the share is the reward."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables."""


def folder() -> Path:
    """The folder of the shipped tasks, `SPLIT/TASK/` in it; written once a machine and cached."""
    files = _files()
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    place = Path.home() / ".cache" / "flwr_agent" / "harbor" / digest
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as unfinished:
            write(files, Path(unfinished) / "tasks")
            try:
                (Path(unfinished) / "tasks").rename(place)
            except OSError:
                if not place.is_dir():
                    raise
    return place


def write(files: Mapping[str, str], place: Path) -> None:
    """Write `files`, path -> content, below a folder."""
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content, encoding="utf-8")


def count(draw: random.Random) -> Draft:
    """Lines with a word."""
    word = draw.choice(("ERROR", "WARN", "DEBUG"))
    lines = [f"{n:03d} {draw.choice(('ERROR', 'WARN', 'DEBUG', 'INFO'))} {draw.choice(_THINGS)}" for n in range(60)]
    return _answer(
        f"Write the number of lines of log.txt that contain {word} to the file answer.txt.",
        {"log.txt": _lines(lines)},
        f"grep -c {word} log.txt > answer.txt",
        str(sum(word in line for line in lines)),
    )


def total(draw: random.Random) -> Draft:
    """The sum of a column."""
    amounts = [draw.randrange(1, 500) for _ in range(20)]
    rows = [f"{draw.choice(_THINGS)},{amount}" for amount in amounts]
    return _answer(
        "Write the sum of the second column of stock.csv to the file answer.txt.",
        {"stock.csv": _lines(rows)},
        "awk -F, '{s += $2} END {print s}' stock.csv > answer.txt",
        str(sum(amounts)),
    )


def largest(draw: random.Random) -> Draft:
    """The largest file."""
    names = draw.sample(_THINGS, 6)
    sizes = draw.sample(range(50, 900), 6)
    files = {f"data/{name}.bin": "x" * size for name, size in zip(names, sizes, strict=True)}
    return _answer(
        "Write the name of the largest file in the folder data to the file answer.txt.",
        files,
        "ls -S data | head -n 1 > answer.txt",
        f"{names[sizes.index(max(sizes))]}.bin",
    )


def locate(draw: random.Random) -> Draft:
    """The file that holds a word."""
    word = f"key{draw.randrange(10_000):04d}"
    paths = [f"tree/{draw.choice(_NAMES)}/{thing}.txt" for thing in draw.sample(_THINGS, 12)]
    files = {path: _lines(draw.choices(_THINGS, k=5)) for path in paths}
    files[paths[0]] += f"{word}\n"
    return _answer(
        f"One file below the folder tree contains the word {word}. Write its path, which starts with tree/, to the "
        "file answer.txt.",
        files,
        f"grep -rl {word} tree > answer.txt",
        paths[0],
    )


def decode(draw: random.Random) -> Draft:
    """A text in base64."""
    text = " ".join(draw.sample(_THINGS, 5))
    return _answer(
        "The file secret.b64 is encoded in base64. Write the decoded text to the file answer.txt.",
        {"secret.b64": base64.b64encode(text.encode()).decode() + "\n"},
        "base64 -d secret.b64 > answer.txt",
        text,
    )


def lookup(draw: random.Random) -> Draft:
    """A field of one line."""
    names = draw.sample(_NAMES, 10)
    shells = [draw.choice(("/bin/sh", "/bin/bash", "/bin/zsh")) for _ in names]
    rows = [
        f"{name}:{1000 + n}:/home/{name}:{shell}" for n, (name, shell) in enumerate(zip(names, shells, strict=True))
    ]
    return _answer(
        f"Each line of users.txt reads name:number:home:shell. Write the shell of {names[3]} to the file answer.txt.",
        {"users.txt": _lines(rows)},
        f"grep ^{names[3]}: users.txt | cut -d: -f4 > answer.txt",
        shells[3],
    )


def variable(draw: random.Random) -> Draft:
    """A variable of the environment."""
    value = f"{draw.choice(_THINGS)}-{draw.randrange(100)}"
    return _answer(
        "Write the value of the environment variable RELEASE to the file answer.txt.",
        {},
        "printenv RELEASE > answer.txt",
        value,
        {"RELEASE": value},
    )


def unique(draw: random.Random) -> Draft:
    """Names, each once, sorted."""
    names = draw.choices(_NAMES, k=40)
    return Draft(
        "Write the names in names.txt to the file sorted.txt, each name once, in alphabetical order, one a line.",
        {"names.txt": _lines(names)},
        "sort -u names.txt > sorted.txt",
        (_reads("sorted.txt", "\n".join(sorted(set(names)))),),
    )


def setting(draw: random.Random) -> Draft:
    """One value of a configuration."""
    old, new = draw.sample(range(2000, 9000), 2)
    keys = draw.sample(_THINGS, 5)
    rows = [f"{key}={draw.randrange(100)}" for key in keys]
    before, after = ([*rows[:2], f"port={port}", *rows[2:]] for port in (old, new))
    return Draft(
        f"Set port to {new} in the file app.conf and change nothing else in it.",
        {"app.conf": _lines(before)},
        f"sed -i 's/^port=.*/port={new}/' app.conf",
        (_reads("app.conf", "\n".join(after)),),
    )


def tidy(draw: random.Random) -> Draft:
    """Files into a folder."""
    names = draw.sample(_THINGS, 6)
    files = {f"{name}.{'log' if n < 4 else 'txt'}": f"{name}\n" for n, name in enumerate(names)}
    conditions = (f"[ ! -e {name}.log ] && {_reads(f'logs/{name}.log', name)}" for name in names[:4])
    return Draft(
        "Move every file of the working directory whose name ends in .log into a new folder named logs.",
        files,
        "mkdir -p logs && mv *.log logs/",
        tuple(conditions),
    )


CATEGORIES: tuple[Callable[[random.Random], Draft], ...] = (
    count,
    total,
    largest,
    locate,
    decode,
    lookup,
    variable,
    unique,
    setting,
    tidy,
)
"""One function a category; its name is the category's."""


def _answer(instruction: str, files: Mapping[str, str], solve: str, answer: str, env: Mapping[str, str] | None = None):
    return Draft(instruction, files, solve, (_reads("answer.txt", answer),), env or {})


def _lines(rows: Sequence[str]) -> str:
    return "\n".join(rows) + "\n"


def _reads(file: str, content: str) -> str:
    return f"reads {file} {shlex.quote(content)}"


@functools.cache
def _files() -> dict[str, str]:
    """Path -> content of every file of every task."""
    return {
        f"{split}/{category.__name__}-{number}/{path}": content
        for category in CATEGORIES
        for split, num_tasks in NUM_TASKS.items()
        for number in range(num_tasks)
        for path, content in _directory(category, split, number).items()
    }


def _directory(category: Callable[[random.Random], Draft], split: str, number: int) -> dict[str, str]:
    name = category.__name__
    draft = category(random.Random(seed_for("harbor", name, split, number)))
    dockerfile = ["FROM debian:bookworm-slim", *(f"ENV {key}={value}" for key, value in draft.env.items())]
    dockerfile += ["WORKDIR /app", *([f"COPY {_FILES_AT_START}/ /app/"] if draft.files else [])]
    return {
        "task.toml": _TOML.format(name=f"{name}-{split}-{number}", category=name),
        "instruction.md": f"{draft.instruction}\n",
        "environment/Dockerfile": _lines(dockerfile),
        **{f"environment/{_FILES_AT_START}/{path}": content for path, content in draft.files.items()},
        "solution/solve.sh": f"#!/bin/bash\n{draft.solve}\n",
        "tests/test.sh": _test(draft.conditions),
    }


def _test(conditions: tuple[str, ...]) -> str:
    if len(conditions) == 1:
        return f"{_CHECKS}if {conditions[0]}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
    counted = "".join(f"if {condition}; then passed=$((passed + 1)); fi\n" for condition in conditions)
    share = f'"$(awk "BEGIN {{print $passed / {len(conditions)}}}")"'
    return f"{_CHECKS}passed=0\n{counted}printf '{{\"reward\": %s}}' {share} > /logs/verifier/reward.json\n"
