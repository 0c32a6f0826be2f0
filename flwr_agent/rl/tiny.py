"""A policy that starts small: a word-level Llama of a fraction of a million parameters, made here, offline.

It is warm-started on a careless expert's demonstrations, so that it can do the task now and then and reinforcement
learning has something to improve. The same package, environment and prompt style give the same files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from envs.base import EnvAdapter
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.policy import TINY_WIDTH
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.demos import Demo, demonstrate
from flwr_agent.rl.generate import left_pad
from flwr_agent.seeds import rng, seed_for
from flwr_agent.world import to_adapter

log = logging.getLogger(__name__)

SPECIAL = ("<pad>", "<unk>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = Regex(r"\d{1,2}|[^\W\d_]+|[^\w\s]|_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How the tiny policy is made; any change makes another policy."""

    version: int = 1
    """Of the making itself; also the seed of every draw."""
    hidden_size: int = TINY_WIDTH
    """Width of the residual stream; embeddings are tied."""
    num_layers: int = 2
    """Decoder layers."""
    num_heads: int = 3
    """Attention heads of a layer."""
    num_demos: int = 2400
    """Demonstrated episodes, at most one per task."""
    haste: float = 0.85
    """See `demos.hurried`."""
    num_steps: int = 500
    """AdamW steps."""
    batch_rows: int = 32
    """Demonstrated turns in a step."""
    lr: float = 2e-3
    """Peak learning rate of a one-cycle schedule."""
    prompt_weight: float = 0.3
    """Weight of predicting the prompt's own tokens beside the answer's: it teaches the model to copy."""
    num_threads: int = 2
    """Fixed, because the number of threads changes the last bits of a sum."""


def place(config: RunConfig, recipe: Recipe = Recipe()) -> Path:
    """Folder where this machine keeps the tiny policy of a run's environment and prompt style, made or not."""
    made_of = [asdict(recipe), to_adapter(config).fingerprint(), config.prompt.style, config.rollout.history]
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "flwr_agent" / "tiny" / name


def ensure(config: RunConfig, recipe: Recipe = Recipe()) -> Path:
    """The tiny policy's folder; made once per machine and cached.

    Raises:
        ConfigError: the environment has no `demo` tasks or no oracle.
    """
    folder = place(config, recipe)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            log.info("making the tiny policy, once on this machine: %s", folder)
            unfinished = folder.with_suffix(".tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            build(to_adapter(config), unfinished, recipe, history=config.rollout.history)
            unfinished.rename(folder)
    return folder


def build(adapter: EnvAdapter, folder: Path, recipe: Recipe, *, history: int) -> None:
    """Write tokenizer and warm-started weights to `folder`.

    Raises:
        ConfigError: the environment has no `demo` tasks or no oracle.
    """
    tasks = adapter.tasks("demo")
    order = rng(recipe.version, "demos").permutation(len(tasks))[: recipe.num_demos]
    demos = demonstrate(adapter, [tasks[i] for i in order], haste=recipe.haste, history=history, seed=recipe.version)
    if not demos:
        fix = f"environment {adapter.name!r} has no demonstrations; give a model folder or a Hugging Face id"
        raise ConfigError("model.path", "tiny", fix)
    # Training tasks lend their words, which would be spelled otherwise; nobody imitates their solutions.
    words = demonstrate(adapter, adapter.tasks("train")[:500], haste=0.0, history=0, seed=recipe.version)
    tokenizer = to_tokenizer(f"{d.prompt}\n{d.answer}" for d in [*demos, *words])
    with _threads(recipe.num_threads):
        model = to_model(len(tokenizer), recipe)
        imitate(model, Chat(tokenizer), demos, recipe)
    folder.mkdir(parents=True)
    disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def to_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A lower-case tokenizer: words seen in `texts` are one token each, others are spelled in characters.

    Numbers are words of at most two digits, `1080` is `10 80`; what is not ASCII and was not seen is unknown.
    """
    split = pre_tokenizers.Split(_WORDS, "removed", invert=True)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in split.pre_tokenize_str(text.lower()))
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    words = sorted(set(counts) | {"user", "assistant", "system"})
    vocabulary = dict.fromkeys([*SPECIAL, *letters, *(f"##{c}" for c in letters if c.isalnum()), *words])
    core = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = split
    core.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<|im_end|>",
        bos_token="<|im_start|>",
        padding_side="left",
        truncation_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def to_model(vocab_size: int, recipe: Recipe) -> LlamaForCausalLM:
    """An untrained policy with seeded weights; no global generator is touched.

    The value and output projections of each attention layer start as each other's transpose, so that attending to a
    token copies it (after Trockman and Kolter 2023, mimetic initialisation); shopping is mostly copying.
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.hidden_size * 8 // 3,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed_for(recipe.version, "tiny"))
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape, generator=generator) * (0.1 if "embed" in name else p.size(1) ** -0.5))
        for layer in model.model.layers:
            attention: Any = layer.self_attn
            copied, _ = torch.linalg.qr(attention.v_proj.weight)
            attention.v_proj.weight.copy_(copied)
            attention.o_proj.weight.copy_(copied.T)
    return model


def imitate(model: PreTrainedModel, chat: Chat, demos: Sequence[Demo], recipe: Recipe) -> None:
    """Minimise the cross-entropy of the demonstrations for `num_steps` batches."""
    prompts = chat.prompts([demo.prompt for demo in demos])
    answers = [
        [*ids, chat.tokenizer.eos_token_id]
        for ids in chat.tokenizer([d.answer for d in demos], add_special_tokens=False)["input_ids"]
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.lr, recipe.num_steps, pct_start=0.1)
    model.train()
    lengths = [len(p) + len(a) for p, a in zip(prompts, answers, strict=True)]
    for step, rows in enumerate(like_length_batches(lengths, recipe)):
        loss = _loss(model, [prompts[i] for i in rows], [answers[i] for i in rows], chat.pad_id, recipe.prompt_weight)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            log.debug("imitation: step %d of %d, loss %.3f", step, recipe.num_steps, float(loss.detach()))
    model.eval()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def like_length_batches(lengths: Sequence[int], recipe: Recipe) -> Iterator[list[int]]:
    """Seeded batches whose rows are about equally long, so that little is padded; `num_steps` of them."""
    draw, size, done = rng(recipe.version, "imitate"), recipe.batch_rows, 0
    while done < recipe.num_steps:
        order = draw.permutation(len(lengths))
        order = order[np.argsort(np.asarray(lengths)[order], kind="stable")]
        batches = [order[at : at + size].tolist() for at in range(0, len(order), size)]
        for i in draw.permutation(len(batches))[: recipe.num_steps - done]:
            yield batches[i]
        done += len(batches)


def _loss(
    model: PreTrainedModel, prompts: list[list[int]], answers: list[list[int]], pad_id: int, prompt_weight: float
) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens, plus `prompt_weight` times that of the prompts'."""
    ids, mask = left_pad([p + a for p, a in zip(prompts, answers, strict=True)], pad_id, model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits[:, :-1]
    losses_BT = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    lengths_B1 = torch.tensor([[len(a)] for a in answers], device=ids.device)
    is_answer_BT = torch.arange(losses_BT.size(1), 0, -1, device=ids.device) <= lengths_B1
    is_prompt_BT = (mask[:, :-1] == 1) & ~is_answer_BT
    return losses_BT[is_answer_BT].mean() + prompt_weight * losses_BT[is_prompt_BT].mean()
