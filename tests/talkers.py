"""Tokenizers of several template families, a generator that says what it is told, and an environment that breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from envs.base import Step, Task, View
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.generate import Completion, Request

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""With a system turn of its own where none is given."""
FORGETFUL = CHATML.replace("{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] }}")
"""Deletes the reasoning of past answers."""
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""Trims contents and writes the start token itself."""
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }} </s>"
    "{% else %}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
"""Writes a blank before the end of an answer."""
SHOUTING = CHATML.replace("m['content'] }}", "m['content'] | upper }}")
"""Does not keep an answer as it is."""

TEMPLATES = {"chatml": CHATML, "forgetful": FORGETFUL, "headers": HEADERS, "inst": INST, "shouting": SHOUTING}
ENDS = {"chatml": "<|im_end|>", "forgetful": "<|im_end|>", "headers": "<|eot_id|>", "inst": "</s>"}
SPECIAL = [
    "<bos>",
    "<end>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "</s>",
]


@cache
def chat(family: str = "chatml") -> Chat:
    """A byte-level tokenizer, without loss, whose own end token is `<end>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({c: i for i, c in enumerate([*SPECIAL, *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<bos>", eos_token="<end>")  # noqa: S106
    tokenizer.chat_template = TEMPLATES[family]
    return Chat(tokenizer)


def ids(text: str, family: str = "chatml") -> list[int]:
    return chat(family).tokenizer(text, add_special_tokens=False)["input_ids"]


class Scripted:
    """A generator whose answers are `say(prompt text, request)`; a few at a time and in reverse, as an engine may."""

    def __init__(self, say: Callable[[str, Request], str], talk: Chat | None = None, *, at_once: int = 3):
        self.say, self.chat, self.at_once = say, talk or chat(), at_once
        self.seen: list[Request] = []
        self.answered: list[tuple[Request, Completion]] = []
        self._open: list[Request] = []

    def submit(self, request: Request) -> None:
        self.seen.append(request)
        self._open.append(request)

    def collect(self) -> list[Completion]:
        done, self._open = self._open[-self.at_once :][::-1], self._open[: -self.at_once]
        answers = [self._answer(request) for request in done]
        self.answered += zip(done, answers, strict=True)
        return answers

    def _answer(self, request: Request) -> Completion:
        said = self.say(self.chat.tokenizer.decode(request.prompt_ids), request) + "<|im_end|>"
        answer = self.chat.tokenizer(said, add_special_tokens=False)["input_ids"][: request.max_new_tokens]
        return Completion(request.key, answer, [-0.5 - i for i in range(len(answer))])


class Fault(Exception):
    """What a broken environment raises: nothing the package knows."""


class Countdown:
    """Say `down` as often as the task's number: `n-3` takes three; `n-0` is done at its reset.

    `faults` says how often to raise where, by task and place: `{("n-3", "step"): 1}`.
    """

    name = "countdown"
    version = "1"

    def __init__(self, faults: dict[tuple[str, str], int] | None = None, *, style: str = "compact", padding: str = ""):
        self.faults, self.padding = Counter(faults or {}), padding
        self.views: list[View] = []
        self.seeds: list[tuple[str, int]] = []
        self.made: list[Game] = []

    def trip(self, task_id: str, place: str) -> None:
        self.faults[task_id, place] -= 1
        if self.faults[task_id, place] >= 0:
            raise Fault(f"{task_id} breaks at {place}")

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"n-{i}", split, {"category": "count"}) for i in range(6)]

    def system_prompt(self) -> str:
        return "Count down."

    def render(self, view: View) -> str:
        self.views.append(view)
        self.trip(view.instruction, "render")
        past = "".join(f"{seen}>{action};" for seen, action in view.history)
        return f"{view.instruction}|{past}{view.observation}"

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        self.trip("any", "parse_action")
        return model_text.strip().lower(), model_text in ("down", "up")

    def make(self) -> Game:
        self.trip("any", "make")
        self.made.append(Game(self))
        return self.made[-1]

    def oracle(self, task: Task) -> list[str]:
        return ["down"] * int(task.id[2:])

    def fingerprint(self) -> str:
        return "countdown"


class Game:
    """One countdown."""

    def __init__(self, world: Countdown):
        self.world, self.left, self.task_id, self.num_closed = world, 0, "", 0

    async def reset(self, task: Task, *, seed: int) -> Step:
        self.world.seeds.append((task.id, seed))
        self.world.trip(task.id, "reset")
        self.task_id, self.left = task.id, int(task.id[2:])
        return self._step(0.0, {"instruction": task.id})

    async def step(self, action: str) -> Step:
        self.world.trip(self.task_id, "step")
        self.left -= action == "down"
        return self._step(0.25 * (action == "down"), {})

    async def close(self) -> None:
        self.num_closed += 1
        self.world.trip(self.task_id, "close")

    def _step(self, reward: float, info: dict[str, str]) -> Step:
        is_won = self.left == 0
        text = f"{self.left} left{self.world.padding}"
        return Step(text, reward, terminated=is_won, info={"success": is_won, "task_id": self.task_id, **info})
