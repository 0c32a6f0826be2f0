"""Policies: any Hugging Face causal LM from a folder or id, or the tiny one that this package makes."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.validate import check_model

TINY = "tiny"
disable_progress_bar()


def load_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase:
    """The policy's tokenizer, padded at the left.

    Raises:
        ConfigError: no such model, or a tokenizer without a chat template.
        DataError: a JSON file of the model is malformed.
    """
    path, source = config.model.path, locate(config)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", truncation_side="left")
    except (OSError, ValueError) as error:
        raise _not_loaded("tokenizer", path, error) from error
    if not tokenizer.chat_template:
        fix = "its tokenizer has no chat template; use an instruct model or add chat_template.jinja"
        raise ConfigError("model.path", path, fix)
    return tokenizer


def load_policy(config: RunConfig) -> PreTrainedModel:
    """The policy with fp32 master weights, all of them from its files.

    Raises:
        ConfigError: no such model, files that cannot be read, or weights that are not all there.
        DataError: a JSON file of the model is malformed.
    """
    path, source = config.model.path, locate(config)
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, attn_implementation="sdpa", output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _not_loaded("causal LM", path, error) from error
    if missing := sorted(found["missing_keys"]):
        fix = f"its files lack {len(missing)} weights of {type(model).__name__}, first {missing[0]!r}; use a causal LM"
        raise ConfigError("model.path", path, fix)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def locate(config: RunConfig) -> str:
    """Folder or hub id of the policy; the tiny one is made first if this machine has not made it yet.

    Raises:
        ConfigError: no such folder, or one that lacks config, weights, tokenizer or chat template.
        DataError: a JSON file of the model is malformed.
    """
    if config.model.path == TINY:
        from flwr_agent.rl.tiny import ensure

        return str(ensure(config))
    check_model(config.model.path)
    folder = Path(config.model.path).expanduser()
    return str(folder) if folder.is_dir() else config.model.path


def _not_loaded(what: str, path: str, error: Exception) -> ConfigError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    fix = f"no {what} could be loaded ({reason}); give a folder or Hugging Face id of an instruct model"
    return ConfigError("model.path", path, fix)
