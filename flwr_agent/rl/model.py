"""Policies: any Hugging Face causal LM from a folder or id, or the tiny one that this package makes."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError

TINY = "tiny"
disable_progress_bar()


def load_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase:
    """The policy's tokenizer, padded at the left.

    Raises:
        ConfigError: no such model, or a tokenizer without a chat template.
    """
    folder = locate(config)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", truncation_side="left")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "model.path", config.model.path, f"no tokenizer could be loaded: {_first_line(error)}"
        ) from error
    if not tokenizer.chat_template:
        raise ConfigError(
            "model.path",
            config.model.path,
            "its tokenizer has no chat template; use an instruct model, "
            "or add `chat_template` to tokenizer_config.json",
        )
    return tokenizer


def load_policy(config: RunConfig) -> PreTrainedModel:
    """The policy with fp32 master weights.

    Raises:
        ConfigError: no such model.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return AutoModelForCausalLM.from_pretrained(locate(config), dtype=torch.float32, attn_implementation="sdpa").to(
            device
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            "model.path", config.model.path, f"no causal LM could be loaded: {_first_line(error)}"
        ) from error


def locate(config: RunConfig) -> str:
    """Folder or hub id of the policy; the tiny one is made first if this machine has not made it yet."""
    if config.model.path == TINY:
        from flwr_agent.rl.tiny import ensure

        return str(ensure(config))
    folder = Path(config.model.path).expanduser()
    return str(folder) if folder.is_dir() else config.model.path


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
