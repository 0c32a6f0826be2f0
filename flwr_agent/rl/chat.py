"""Messages to tokens and back, by the tokenizer's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from transformers import PreTrainedTokenizerBase

_ANSWER = "\u2402answer\u2402"


class Chat:
    """One tokenizer with its template; generation and training see the same ids because both come from here."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer

    def prompts(self, messages: Sequence[str]) -> list[list[int]]:
        """Ids of single-message conversations, each ready to be answered (windowed mode: no system turn)."""
        return self._ids([self._text([{"role": "user", "content": message}], ask=True) for message in messages])

    def opening(self, system: str, message: str) -> list[int]:
        """Ids of a conversation's start: system turn (if any), first message, ready to be answered."""
        turns = [{"role": "system", "content": system}] if system else []
        return self._ids([self._text([*turns, {"role": "user", "content": message}], ask=True)])[0]

    def continuation(self, answered: Sequence[int], message: str) -> list[int]:
        """Ids that follow the answer `answered`: the template's glue, the next message, ready to be answered.

        The glue is what the template writes after an answer, found as text; the end-of-turn token that the sampler
        itself emitted is not written twice.
        """
        before, _, after = self._text(
            [
                {"role": "user", "content": "."},
                {"role": "assistant", "content": _ANSWER},
                {"role": "user", "content": message},
            ],
            ask=True,
        ).rpartition(_ANSWER)
        if not before:
            raise ValueError("the chat template rewrites answers; concat mode needs one that keeps them as they are")
        ids = self._ids([after])[0]
        if answered and ids and answered[-1] == ids[0] and ids[0] in self.eos_ids:
            return ids[1:]
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """What the model said, without special tokens."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ends = [
            self.tokenizer.eos_token_id,
            *(self.tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|eot_id|>")),
        ]
        return frozenset(i for i in ends if i is not None and i != self.tokenizer.unk_token_id)

    @property
    def pad_id(self) -> int:
        """The padding token, or an end token where the tokenizer has none."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else min(self.eos_ids)

    def _text(self, messages: list[dict[str, str]], *, ask: bool) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]
