"""An untrained policy in a folder, and a small world to play it in."""

import zlib
from pathlib import Path

from envs.base import Shard, Step, Task, Variant
from envs.prompts import compact, plain_answer
from flwr_agent.rl.tiny import Recipe, to_model, to_tokenizer

WORDS = [f"{colour} {thing}" for colour in ("red", "green", "blue") for thing in ("hat", "shoe", "lamp", "sock")]
NUM_TASKS = 24


def save_policy(folder: Path, version: int = 1) -> str:
    tokenizer = to_tokenizer(["task : say something > said red green blue hat shoe lamp sock"])
    to_model(len(tokenizer), Recipe(version=version, hidden_size=24, num_layers=1, num_heads=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class Letters:
    """Say something with the letter that wins in this world; each task takes half of such answers."""

    name, version = "letters", "1"

    def __init__(self, *, style, variant=None):
        self.letter = "" if variant is None else variant.params["letter"]

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": WORDS[n % 12]}) for n in range(NUM_TASKS)]

    def system_prompt(self):
        return "say something"

    def render(self, view):
        return compact(view)

    def parse_action(self, model_text):
        return plain_answer(model_text), True

    def make(self):
        return LettersEnv(self.letter)

    def oracle(self, task):
        return ["red green blue hat shoe lamp sock " + self.letter * 3]

    def fingerprint(self):
        return f"letters {self.letter}"


class LettersEnv:
    def __init__(self, letter):
        self.letter = letter

    async def reset(self, task, *, seed):
        self.task = task
        if task.id.endswith("-13") and self.letter == "!":
            raise RuntimeError("no such page")
        return Step("nothing", info={"instruction": task.meta["category"]})

    async def step(self, action):
        won = zlib.crc32(f"{self.task.id} {action}".encode()) % 2 == 0 and self.letter in action
        return Step("said", float(won), terminated=True, info={"success": won, "task_score": float(won)})

    async def close(self):
        pass


def letters(tasks, client_id, num_clients, *, seed):
    """Every client has its slice and a letter of its own that wins; client 2's world wants what nobody says."""
    mine = tuple(task.id for task in tasks[client_id::num_clients])
    return Shard(client_id, mine, Variant("letters", {"letter": ["", "e", "é"][client_id % 3]}))
