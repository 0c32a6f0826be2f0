"""Reads a Dockerfile as far as it can be honoured without containers: FROM a plain base, COPY, WORKDIR, ENV."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import Template

from envs.harbor.schema import text
from flwr_agent.errors import DataError

HOST_BASES = ("debian", "ubuntu")
"""Base images whose programs this machine's own stand in for."""
WORKDIR = "/app"
"""Where commands start when nothing says so."""

_SILENT = ("LABEL", "EXPOSE", "CMD", "ENTRYPOINT", "MAINTAINER", "STOPSIGNAL", "SHELL", "USER", "VOLUME", "HEALTHCHECK")
"""Instructions that change nothing for commands run in a shell of one user."""
_TAKEN = re.compile(r"usr|s?bin|lib(32|64|x32)?|etc|proc|dev|sys|run|boot|tests|logs|solution|")
"""Top folders that are the machine's or the verifier's own."""
_DOCKER = "needs a container: set env.sandbox=docker"


@dataclass(slots=True)
class Recipe:
    """What a Dockerfile asks for."""

    workdir: str = WORKDIR
    """Absolute; the last WORKDIR."""
    env: dict[str, str] = field(default_factory=dict)
    """The ENV variables."""
    copies: list[tuple[list[str], str]] = field(default_factory=list)
    """(sources in the build context, absolute target); a target ending in `/` is a folder."""

    def folders(self) -> list[str]:
        """Names of the top folders the episode owns, sorted."""
        targets = [self.workdir, "/root/", "/tmp/", *(target for _, target in self.copies)]  # noqa: S108  of the sandbox
        return sorted({target.split("/")[1] for target in targets})


def parse(file: Path, workdir: str | None = None) -> Recipe:
    """The recipe of a Dockerfile; `workdir` overrules its own.

    Raises:
        DataError: an instruction that only a container can honour, a malformed one, or a source that is missing.
    """
    recipe, has_base = Recipe(), False
    for instruction, rest in _instructions(file):
        if instruction == "FROM":
            if has_base:
                raise DataError(file, "FROM", f"a second stage {_DOCKER}")
            check_base(file, rest)
            has_base = True
        elif instruction in ("COPY", "ADD"):
            recipe.copies.append(_copy(file, instruction, rest, recipe))
        elif instruction == "WORKDIR":
            recipe.workdir = _absolute(_expand(rest, recipe.env), recipe.workdir)
        elif instruction == "ENV":
            recipe.env |= _variables(file, rest, recipe.env)
        elif instruction not in _SILENT:
            raise DataError(file, instruction, f"{rest[:60]!r} {_DOCKER}")
    if workdir is not None:
        recipe.workdir = _absolute(workdir, recipe.workdir)
    _check_targets(file, recipe)
    for source in (source for sources, _ in recipe.copies for source in sources):
        _sources(file.parent, source)
    return recipe


def check_base(file: Path, image: str) -> None:
    """Refuse a base image that this machine cannot stand in for.

    Raises:
        DataError: names the image.
    """
    name = image.split()[0] if image else ""
    if re.split("[:@]", name.removeprefix("docker.io/").removeprefix("library/"))[0] not in HOST_BASES:
        raise DataError(file, "FROM", f"image {name!r} {_DOCKER} (without one: {', '.join(HOST_BASES)})")


def lay_out(recipe: Recipe, context: Path, root: Path) -> None:
    """Make the recipe's folders below `root` and copy its files there; links are copied as links.

    Raises:
        DataError: a link leads out of the episode's folders.
    """
    for name in recipe.folders():
        (root / name).mkdir(parents=True, exist_ok=True)
    _under(root, recipe.workdir).mkdir(parents=True, exist_ok=True)
    for sources, target in recipe.copies:
        found = [path for source in sources for path in _sources(context, source)]
        place = _under(root, target)
        is_folder = target.endswith("/") or len(found) > 1 or place.is_dir()
        (place if is_folder else place.parent).mkdir(parents=True, exist_ok=True)
        for path in found:
            _copy_path(path, place / path.name if is_folder and not path.is_dir() else place, root)


def _instructions(file: Path) -> Iterable[tuple[str, str]]:
    """(INSTRUCTION, the rest), comments dropped and continued lines joined."""
    if not file.is_file():
        raise DataError(file, "file", "is missing; write one, or name environment.docker_image")
    lines = (line.strip() for line in text(file).splitlines())
    kept = "\n".join(line for line in lines if line and not line.startswith("#"))
    for line in kept.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        yield instruction.upper(), rest.strip()


def _copy(file: Path, instruction: str, rest: str, recipe: Recipe) -> tuple[list[str], str]:
    words = _words(file, instruction, rest)
    flags = [word for word in words if word.startswith("--")]
    paths = [_expand(word, recipe.env) for word in words if not word.startswith("--")]
    if any(flag.startswith("--from") for flag in flags) or any("://" in path for path in paths):
        raise DataError(file, instruction, f"{rest[:60]!r} {_DOCKER}")
    if len(paths) < 2:
        raise DataError(file, instruction, "needs a source and a target")
    target = _absolute(paths[-1], recipe.workdir)
    return paths[:-1], f"{target}/" if paths[-1].endswith(("/", ".")) else target


def _words(file: Path, instruction: str, rest: str) -> list[str]:
    try:
        return [str(word) for word in json.loads(rest)] if rest.startswith("[") else shlex.split(rest)
    except ValueError as error:
        raise DataError(file, instruction, f"{rest[:60]!r} is malformed ({error})") from error


def _variables(file: Path, rest: str, known: Mapping[str, str]) -> dict[str, str]:
    words = _words(file, "ENV", rest)
    if words and "=" not in words[0]:
        name, _, value = rest.partition(" ")
        words = [f"{name}={value.strip()}"]
    pairs = (word.partition("=") for word in words)
    return {name: _expand(value, known) for name, _, value in pairs}


def _expand(text: str, variables: Mapping[str, str]) -> str:
    return Template(text).safe_substitute(variables)


def _absolute(path: str, base: str) -> str:
    return posixpath.normpath(posixpath.join("/", base, path))


def _check_targets(file: Path, recipe: Recipe) -> None:
    for name in recipe.folders():
        if _TAKEN.fullmatch(name):
            raise DataError(file, "WORKDIR, COPY", f"a target in '/{name}' {_DOCKER}")


def _under(root: Path, target: str) -> Path:
    return root / target.strip("/")


def _sources(context: Path, source: str) -> list[Path]:
    inside = posixpath.normpath(source.lstrip("/"))
    if inside.startswith(".."):
        raise DataError(context / "Dockerfile", "COPY", f"{source!r} lies outside the folder")
    try:
        found = [context] if inside == "." else sorted(context.glob(inside))
    except ValueError as error:
        raise DataError(context / "Dockerfile", "COPY", f"{source!r} is malformed ({error})") from error
    if not found:
        raise DataError(context / "Dockerfile", "COPY", f"{source!r} is missing")
    return found


def _copy_path(source: Path, target: Path, root: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=partial(_copy_file, root=root))
    else:
        _copy_file(source, target, root=root)


def _copy_file(source: str | Path, target: str | Path, *, root: Path) -> None:
    if not Path(target).resolve().is_relative_to(root.resolve()):
        raise DataError(source, "COPY", "a link leads its target out of the episode's folders")
    shutil.copy2(source, target, follow_symlinks=False)
