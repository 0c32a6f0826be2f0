"""Code blocks of Markdown pages."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a language, in order."""
    return [body for found, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]
