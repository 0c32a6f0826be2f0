"""Messages to tokens and back, by the tokenizer's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from flwr_agent.errors import ConfigError

_ANSWER = "\u2402answer\u2402"


class Chat:
    """One tokenizer with its template; generation and training see the same ids because both come from here."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer

    def prompts(self, messages: Sequence[str]) -> list[list[int]]:
        """Ids of single-message conversations, each ready to be answered (windowed mode: no system turn)."""
        return self._ids([self._text([{"role": "user", "content": message}]) for message in messages])

    def opening(self, system: str, message: str) -> list[int]:
        """Ids of a conversation's start: system turn (if any), first message, ready to be answered."""
        turns = [{"role": "system", "content": system}] if system else []
        return self._ids([self._text([*turns, {"role": "user", "content": message}])])[0]

    def continuation(self, answered: Sequence[int], message: str) -> list[int]:
        """Ids that follow the answer `answered`: the template's glue, the next message, ready to be answered.

        The glue is what the template writes after an answer, found as text; the end-of-turn token that the sampler
        itself emitted is not written twice.

        Raises:
            ConfigError: the template does not keep an answer as it is.
        """
        text = self._after_answer(message)
        if not text:
            raise ConfigError("rollout.mode", "concat", "the model's chat template rewrites answers; use windowed")
        ids = self._ids([text])[0]
        if answered and answered[-1] in self.eos_ids and answered[-1] in ids:
            end = ids.index(answered[-1])
            if not self.text(ids[:end]).strip():
                return ids[end + 1 :]
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """What the model said, without special tokens."""
        if self.tokenizer.is_fast and not self.tokenizer.clean_up_tokenization_spaces:
            return self._core.decode(list(ids), skip_special_tokens=True)  # the same without a look at every id
        return cast("str", self.tokenizer.decode(list(ids), skip_special_tokens=True))

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer: the tokenizer's own, and the special token that the template writes after one."""
        special = {i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        written = self._ids([self._after_answer(".")])[0]
        ends = [self.tokenizer.eos_token_id, next((i for i in written if i in special), None)]
        return frozenset(i for i in ends if i is not None)

    @property
    def pad_id(self) -> int:
        """The padding token, or an end token where the tokenizer has none; it is always masked."""
        pad = cast("int | None", self.tokenizer.pad_token_id)
        return pad if pad is not None else min(self.eos_ids, default=0)

    def _after_answer(self, message: str) -> str:
        """What the template writes after an answer that `message` follows; empty if it rewrites answers."""
        turns = [("user", "."), ("assistant", _ANSWER), ("user", message)]
        return self._text([{"role": role, "content": content} for role, content in turns]).partition(_ANSWER)[2]

    def _text(self, messages: list[dict[str, str]]) -> str:
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return cast("str", text)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if not self.tokenizer.is_fast:
            return self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        # Without offsets and masks, and without the interpreter's lock: other threads go on meanwhile.
        encoded = self._core.encode_batch_fast(texts, add_special_tokens=False)
        return [one.ids for one in encoded]

    @cached_property
    def _core(self) -> Any:
        core: Any = self.tokenizer.backend_tokenizer
        core.no_padding()
        core.no_truncation()
        return core
