"""Task directories of the real format, made for tests, and episodes played in them by a caller of a chosen rank."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

TOML = '[task]\nname = "t/{name}"\n[metadata]\ncategory = "test"\n'
TEST = 'if [ "$(cat answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
PLAIN_UID = 12345

PLAY = """
import asyncio, json, os, sys, tempfile
from envs.harbor import Harbor, bubblewrap
uid, data, settings, plans = json.load(sys.stdin)
tempfile.tempdir = data + "/episodes"
adapter = Harbor(data_path=data, style="compact", **settings)
tasks = {task.id: task for split in ("train", "val", "demo") for task in adapter.tasks(split)}

async def play(task, actions):
    env = adapter.make()
    error, steps = "", []
    try:
        steps.append(await env.reset(tasks[task], seed=0))
        for action in actions:
            steps.append(await env.step(action))
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    await env.close()
    return {"steps": [[s.text, s.reward, s.done] for s in steps], "error": error}

async def main(plans):
    return await asyncio.gather(*(play(*plan) for plan in plans))

if uid:
    asyncio.run(main([(next(iter(tasks)), ["true"])]))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    bubblewrap._problem.cache_clear()
    bubblewrap.check()

json.dump(asyncio.run(main(plans)), sys.stdout)
"""


def put(folder: Path, name: str = "one", *, split: str = "train", toml: str = "", **files: str) -> Path:
    """Write a task directory; `files`, path -> content, replace its own."""
    place = folder / split / name
    contents = {
        "task.toml": TOML.format(name=name) + toml,
        "instruction.md": "Write 42 to answer.txt.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\necho 42 > answer.txt\n",
        "tests/test.sh": TEST,
        **files,
    }
    for path, content in contents.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content)
    return place


def shared_folder() -> Path:
    """A folder that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="harbor-test-"))
    folder.chmod(0o755)
    (folder / "episodes").mkdir()
    (folder / "episodes").chmod(0o777)
    return folder


def episodes_left(folder: Path) -> list[Path]:
    """What episodes have left behind."""
    return list((folder / "episodes").iterdir())


def processes_with(word):
    """Command lines of the running processes that hold a word, after a moment to die."""
    time.sleep(0.2)
    return [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if word in " ".join(p.info["cmdline"] or [])]


def play(caller: str, data: Path, plans: list[tuple[str, list[str]]], **settings: object) -> list[dict]:
    """Play several plans at once, in one process of root's or of a plain user's."""
    uid = PLAIN_UID if caller == "plain" and os.geteuid() == 0 else 0
    order = json.dumps([uid, str(data), settings, plans])
    done = subprocess.run([sys.executable, "-c", PLAY], input=order, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
