"""TinyGuess: guess a number from 1 to 50 in six turns; the smallest environment on which learning shows."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence

from envs.base import Step, Task, Variant, View
from envs.prompts import answer_format, compact, known, past
from envs.variant import refuse
from flwr_agent.errors import ConfigError

HIGHEST = 50
NUM_TURNS = 6
NUM_TASKS = {"train": 4000, "val": 1000, "demo": 1000}

INSTRUCTION = f"guess a number from 1 to {HIGHEST} in {NUM_TURNS} turns"
START = "no guess yet"

_KEY = b"flwr-agent tinyguess 1"
_NUMBER = re.compile(r"\d+", re.ASCII)
_ANSWER = re.compile(r"<answer>\s*(\d+)\s*</answer>", re.ASCII)


def secret(task_id: str) -> int:
    """The number to find: a keyed hash of the task's id, so that no row order or seed gives it away.

    Example:
        >>> 1 <= secret("guess-train-0") <= HIGHEST
        True
    """
    digest = hashlib.blake2b(task_id.encode(), key=_KEY, digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % HIGHEST


def interval(number: int) -> str:
    """The tenth-wide range a number lies in, `01-10` to `41-50`: the category partitions cut by."""
    low = (number - 1) // 10 * 10 + 1
    return f"{low:02d}-{low + 9:02d}"


class Guess:
    """One game."""

    def __init__(self) -> None:
        self._task_id = ""
        self._secret = 0
        self._turns_left = 0

    async def reset(self, task: Task, *, seed: int) -> Step:  # noqa: ARG002  the secret is the task's, not the seed's
        """Start `task`; the seed changes nothing."""
        self._task_id = task.id
        self._secret = secret(task.id)
        self._turns_left = NUM_TURNS
        return self._answer(START, {"instruction": INSTRUCTION})

    async def step(self, action: str) -> Step:
        """Judge the last integer in `action`; a text without one uses up its turn."""
        if self._turns_left == 0:
            return self._answer("")
        self._turns_left -= 1
        numbers = _NUMBER.findall(action)
        if not numbers:
            return self._answer("say a number")
        guess = int(numbers[-1][-9:])
        if guess != self._secret:
            return self._answer("higher" if guess < self._secret else "lower")
        self._turns_left = 0
        return self._answer("Correct!", is_hit=True)

    async def close(self) -> None:
        """Nothing is held."""

    def _answer(self, text: str, more: dict[str, str] | None = None, *, is_hit: bool = False) -> Step:
        score = float(is_hit)
        info = {"success": is_hit, "task_score": score, "task_id": self._task_id, **(more or {})}
        is_spent = self._turns_left == 0
        return Step(text, score, terminated=is_hit, truncated=is_spent and not is_hit, info=info)


class TinyGuess:
    """The adapter: thousands of tasks, bisection as the oracle.

    Example:
        >>> env = TinyGuess(style="compact")
        >>> env.parse_action("I say <answer>25</answer>")
        ('25', True)
    """

    name = "tinyguess"
    version = "1"

    def __init__(self, *, style: str = "paper", variant: Variant | None = None):
        refuse(self.name, variant)
        self._style = known(style)

    def tasks(self, split: str) -> Sequence[Task]:
        """`train` (4,000), `val` (1,000) or `demo` (1,000) games; `meta` names the interval of the secret."""
        if split not in NUM_TASKS:
            raise ConfigError("split", split, "tinyguess has no such split", allowed=NUM_TASKS)
        return _tasks(split)

    def system_prompt(self) -> str:
        """The rules of the game."""
        return f"You play a game: {INSTRUCTION}. Give each guess as <answer>N</answer>."

    def render(self, view: View) -> str:
        """The user message of one turn."""
        if self._style == "compact":
            return compact(view)
        parts = [
            "You are an expert agent in a number guessing game.",
            f"Your task: {view.instruction}.",
            past(view),
            f"Current observation: {view.observation}",
        ]
        closing = answer_format(choice="number", tag="answer")
        return "\n" + "\n".join(filter(None, parts)) + f"\n\n{closing}\n"

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """`<answer>N</answer>`, else the last integer of the text; in compact style a bare number is valid too."""
        lowered = model_text.lower()
        tagged = _ANSWER.search(lowered)
        if tagged:
            return tagged.group(1), True
        numbers = _NUMBER.findall(lowered)
        is_bare = self._style == "compact" and lowered.split() == numbers[:1]
        return (numbers[-1] if numbers else lowered.strip()), bool(numbers) and is_bare

    def make(self) -> Guess:
        """A fresh game."""
        return Guess()

    def oracle(self, task: Task) -> list[str]:
        """Bisection: at most six guesses find any of fifty numbers."""
        target, low, high, guesses = secret(task.id), 1, HIGHEST, []
        while not guesses or guesses[-1] != target:
            guesses.append((low + high) // 2)
            low, high = (guesses[-1] + 1, high) if guesses[-1] < target else (low, guesses[-1] - 1)
        return [str(guess) for guess in guesses]

    def fingerprint(self) -> str:
        """Digest of the rules and the key."""
        rules = f"{self.name} {self.version} {HIGHEST} {NUM_TURNS} {NUM_TASKS} {_KEY!r}"
        return hashlib.sha256(rules.encode()).hexdigest()


@functools.cache
def _tasks(split: str) -> tuple[Task, ...]:
    ids = [f"guess-{split}-{number}" for number in range(NUM_TASKS[split])]
    return tuple(Task(id_, split, {"category": interval(secret(id_))}) for id_ in ids)
