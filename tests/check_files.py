"""Check the files of a commit: TOML and YAML parse, and none is above 500 KB. A script for the commit hook."""

import sys
import tomllib
from pathlib import Path

import yaml

MOST_BYTES = 500_000


def problem(path: Path) -> str:
    """What is wrong with a file; empty if nothing is."""
    if path.stat().st_size > MOST_BYTES:
        return f"{path}: {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}"
    try:
        if path.suffix == ".toml":
            tomllib.loads(path.read_text(encoding="utf-8"))
        elif path.suffix in (".yaml", ".yml", ".cff"):
            list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        return f"{path}: {error}"
    return ""


if __name__ == "__main__":
    found = [text for path in sys.argv[1:] if Path(path).is_file() and (text := problem(Path(path)))]
    sys.stderr.writelines(f"{text}\n" for text in found)
    sys.exit(1 if found else 0)
