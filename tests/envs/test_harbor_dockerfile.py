import shutil

import pytest

from envs.harbor.dockerfile import lay_out, parse
from flwr_agent.errors import DataError


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "environment"
    (folder / "src" / "deep").mkdir(parents=True)
    for path in ("a.txt", "b.txt", "src/c.py", "src/deep/d.py"):
        (folder / path).write_text(path)
    return folder


def laid(context, text, workdir=None):
    """Files below the root that a Dockerfile makes."""
    (context / "Dockerfile").write_text(text)
    recipe = parse(context / "Dockerfile", workdir)
    root = context.parent / "root"
    shutil.rmtree(root, ignore_errors=True)
    lay_out(recipe, context, root)
    return recipe, {
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() or path.is_symlink()
    }


def test_copies_workdir_and_variables_are_honoured(context):
    text = """# a comment
FROM docker.io/library/debian:bookworm-slim AS base
ENV NAME=app \\
    GREETING="hello world"
ENV OLD an old form
WORKDIR /srv
WORKDIR $NAME
COPY --chown=1:1 a.txt ./
COPY ["b.txt", "renamed.txt"]
CMD ["bash"]
"""
    recipe, files = laid(context, text)
    assert recipe.workdir == "/srv/app"
    assert recipe.env == {"NAME": "app", "GREETING": "hello world", "OLD": "an old form"}
    assert files == {"srv/app/a.txt", "srv/app/renamed.txt"}
    assert recipe.folders() == ["root", "srv", "tmp"]


@pytest.mark.parametrize(
    ("copy", "files"),
    [
        ("a.txt /data/x.txt", {"data/x.txt"}),
        ("a.txt /data/", {"data/a.txt"}),
        ("a.txt b.txt /data", {"data/a.txt", "data/b.txt"}),
        ("*.txt /data/", {"data/a.txt", "data/b.txt"}),
        ("src /data", {"data/c.py", "data/deep/d.py"}),
        ("src/ .", {"app/c.py", "app/deep/d.py"}),
        ("src/deep /root/deep/", {"root/deep/d.py"}),
    ],
)
def test_files_go_where_docker_would_put_them(context, copy, files):
    assert laid(context, f"FROM ubuntu\nWORKDIR /app\nCOPY {copy}\n")[1] == files


def test_without_a_workdir_commands_start_in_app_and_the_task_overrules_the_file(context):
    assert laid(context, "FROM ubuntu:24.04\n")[0].workdir == "/app"
    assert laid(context, "FROM ubuntu:24.04\nWORKDIR /a\n", workdir="/b/c")[0].workdir == "/b/c"
    assert (context.parent / "root" / "b" / "c").is_dir()


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("FROM debian\nRUN apt-get update", "RUN", "needs a container"),
        ("FROM python:3.12", "FROM", "'python:3.12' needs a container"),
        ("FROM debian AS a\nFROM debian", "FROM", "second stage"),
        ("FROM debian\nCOPY --from=a /x /y", "COPY", "needs a container"),
        ("FROM debian\nADD https://example.org/x /y", "ADD", "needs a container"),
        ("FROM debian\nCOPY a.txt /usr/bin/a", "WORKDIR, COPY", "target in '/usr'"),
        ("FROM debian\nCOPY a.txt /app/../etc/passwd", "WORKDIR, COPY", "target in '/etc'"),
        ("FROM debian\nCOPY a.txt /tests/test.sh", "WORKDIR, COPY", "target in '/tests'"),
        ("FROM debian\nWORKDIR /", "WORKDIR, COPY", "target in '/'"),
        ("FROM debian\nCOPY a.txt", "COPY", "a source and a target"),
        ("FROM debian\nCOPY 'a.txt /app", "COPY", "is malformed"),
        ("FROM debian\nCOPY ../secret /app/", "COPY", "lies outside the folder"),
        ("FROM debian\nCOPY absent.txt /app/", "COPY", "'absent.txt' is missing"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_file_and_instruction(context, text, field, message):
    with pytest.raises(DataError, match=message) as caught:
        laid(context, text)
    assert caught.value.path == str(context / "Dockerfile")
    assert caught.value.field == field


@pytest.mark.parametrize("copy", ["absent.txt /app/", "a.txt src/absent* /app/", "a** /app/"])
def test_a_copy_that_cannot_be_made_is_found_before_any_episode(context, copy):
    (context / "Dockerfile").write_text(f"FROM debian\nCOPY {copy}\n")
    with pytest.raises(DataError, match=r"is missing|is malformed"):
        parse(context / "Dockerfile")


def test_a_missing_dockerfile_is_named(context):
    with pytest.raises(DataError, match="Dockerfile: file: is missing"):
        parse(context / "Dockerfile")


def test_links_are_copied_as_links_and_nothing_is_written_through_them(context, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("untouched")
    (context / "src" / "link.txt").symlink_to(outside)
    assert "app/link.txt" in laid(context, "FROM debian\nWORKDIR /app\nCOPY src /app\n")[1]
    with pytest.raises(DataError, match="a link leads its target out"):
        laid(context, "FROM debian\nWORKDIR /app\nCOPY src /app\nCOPY a.txt /app/link.txt\n")
    assert outside.read_text() == "untouched"
