"""What a model may write: any characters, brackets and query syntax, very long texts, and now and then an action."""

import random
from collections.abc import Sequence

ALPHABET = "abc XYZ019[]<>\\\"'*?~^:()+-&|!{}/\t\r\n\x00\x1b\u200b\u00e9\u0663\u4e2d\U0001f6d2\ud800"
SYNTAX = ("size: 8", "women's", "[x]", "red AND (", "-word", "a OR", "jacket^9", "*", "title:(red", "[1 TO 5]", "\\",
          "<action>look</action>", "<think></think><action>", "<answer>25</answer>", "go to", "take")  # fmt: skip


def text(draw: random.Random) -> str:
    if draw.random() < 0.004:
        return draw.choice((draw.choice(ALPHABET) * 100_000, "soft jacket " * 9_000, "[" * 50_000 + "]" * 50_000))
    return draw.choice((*SYNTAX, "".join(draw.choices(ALPHABET, k=draw.randrange(30)))))


def wild(draw: random.Random, listed: Sequence[str] | None) -> str:
    kind = draw.randrange(8)
    if kind < 2 and listed:
        return draw.choice(listed)
    inner = text(draw)
    near = f"{draw.choice(listed)} {inner}" if listed else inner
    forms = (
        f"search[{inner}]",
        f"click[{inner}]",
        f"click {inner}",
        f"go to {inner}",
        f"click[[{inner}]]",
        near,
        inner,
    )
    return forms[kind - 1]
