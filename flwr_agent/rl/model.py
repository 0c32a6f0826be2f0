"""Policies: any Hugging Face causal LM from a folder, an id or a GGUF file, or the tiny one that this package makes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from envs import named
from flwr_agent.arrays import digest
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.policy import GGUF, SMOLLM2, TINY, check_hub, check_model, gguf_file
from flwr_agent.rl.lora import Unadapted, adapt

disable_progress_bar()


def load_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase:
    """The policy's tokenizer, padded at the left.

    Raises:
        ConfigError: no such model, or a tokenizer without a chat template.
        DataError: a JSON file of the model is malformed.
    """
    path, source = config.model.path, locate(config)
    with _loading("tokenizer", path):
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", truncation_side="left")
        if not tokenizer.chat_template:
            fix = "its tokenizer has no chat template; use an instruct model or add chat_template.jinja"
            raise ConfigError("model.path", path, fix)
        if not tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}], add_generation_prompt=True, tokenize=False
        ):
            raise ConfigError("model.path", path, "its chat template writes nothing; use an instruct model")
    return tokenizer


def load_config(config: RunConfig) -> PreTrainedConfig:
    """The policy's architecture.

    Raises:
        ConfigError: no such model.
        DataError: a JSON file of the model is malformed.
    """
    source = locate(config)
    with _loading("configuration", config.model.path):
        return AutoConfig.from_pretrained(source)


def load_policy(config: RunConfig) -> PreTrainedModel | PeftModel:
    """What is trained: every weight in fp32, or fp32 adapters on weights that are held in the compute dtype.

    Raises:
        ConfigError: no such model, files that cannot be read, or weights that are not all there.
        DataError: a JSON file of the model is malformed.
    """
    is_adapted = bool(config.model.lora.rank)
    policy = load_model(config, dtype=compute_dtype(config) if is_adapted else torch.float32)
    return adapt(policy, config) if is_adapted else policy


def load_base(policy: PreTrainedModel | PeftModel, config: RunConfig) -> PreTrainedModel | Unadapted:
    """The original model as the base of a KL term; inside an adapted policy it is there already, unmerged."""
    return Unadapted(policy) if isinstance(policy, PeftModel) else load_model(config, dtype=torch.float32)


def load_model(config: RunConfig, *, dtype: torch.dtype) -> PreTrainedModel:
    """The causal LM of `model.path` as it is, all of its weights from its files.

    Raises:
        ConfigError: no such model, files that cannot be read, or weights that are not all there.
        DataError: a JSON file of the model is malformed.
    """
    path, source, attention = config.model.path, locate(config), config.model.attention
    with _loading("causal LM", path):
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, attn_implementation=attention, output_loading_info=True
            )
        except (ImportError, ValueError) as error:
            if attention.split("_")[0] not in str(error).lower():
                raise
            fix = f"{named.cause(error)}; use sdpa or eager"
            raise ConfigError("model.attention", attention, fix) from error
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        fix = f"its files lack {len(missing)} weights of {type(model).__name__}, first {missing[0]!r}; use a causal LM"
        raise ConfigError("model.path", path, fix)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def compute_dtype(config: RunConfig) -> torch.dtype:
    """Arithmetic of forwards on this machine."""
    if config.model.compute_dtype == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return getattr(torch, config.model.compute_dtype)


def identity(policy: PreTrainedModel | PeftModel) -> str:
    """Digest of the original model's weights, under adapters too: server and clients must hold the same ones."""
    adapted = isinstance(policy, PeftModel)
    held = {name: p for name, p in policy.named_parameters() if not (adapted and ".lora_" in name)}
    return digest({f"actor/{name}": p.detach().float().cpu().numpy() for name, p in held.items()})


def on_base(config: RunConfig, base_digest: str) -> RunConfig:
    """The configuration that loads the base model as a run held it; without adapters nothing of that model is left.

    `model.compute_dtype=auto` becomes the run's own dtype, which is another one on a machine of another kind.

    Raises:
        ConfigError: adapters of the run would stand on another model than the one they were trained on.
    """
    if not config.model.lora.rank:
        return config
    own = str(compute_dtype(config)).removeprefix("torch.")
    found: list[str] = []
    for dtype in sorted(("float32", "bfloat16"), key=lambda name: name != own):
        if config.model.compute_dtype in ("auto", dtype):
            held = replace(config, model=replace(config.model, compute_dtype=dtype))
            found.append(identity(load_policy(held)))
            if found[-1] == base_digest:
                return held
    fix = f"its weights have digest {found[0]}, the run's adapters were trained on {base_digest}; restore the files of the run"
    raise ConfigError("model.path", config.model.path, fix)


def locate(config: RunConfig) -> str:
    """Folder or hub id of the policy; what this machine has to make of it (tiny, GGUF) is made first, once.

    Raises:
        ConfigError: no such folder, one that lacks config, weights, tokenizer or chat template, or no such hub id.
        DataError: a JSON file of the model is malformed.
    """
    path = config.model.path
    if path == TINY:
        from flwr_agent.rl.tiny import ensure

        return str(ensure(config))
    if path == SMOLLM2 or path.endswith(GGUF):
        from flwr_agent.rl.gguf import ensure as converted

        return str(converted(gguf_file(path)))
    check_model(path)
    check_hub(path)
    folder = Path(path).expanduser()
    return str(folder) if folder.is_dir() else path


def _loading(what: str, path: str) -> AbstractContextManager[None]:
    """Whatever the files of a model make transformers raise is one line about `model.path`."""
    act = f"no {what} could be loaded; give a folder or Hugging Face id of an instruct model"
    return named.blamed("model.path", path, act)
