"""GGUF files as model folders: dequantised once per machine, since transformers cannot save what it reads from one."""

from __future__ import annotations

import hashlib
import logging
import shutil
from pathlib import Path

import torch
from filelock import FileLock
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from envs import named

log = logging.getLogger(__name__)
VERSION = 1
"""Of the conversion."""
ORIGIN = ("quantization_config", "_name_or_path", "_model_name_or_path")
"""What reading a GGUF leaves in a configuration and what would keep the plain model from being saved."""


def place(file: Path) -> Path:
    """Folder where this machine keeps the conversion of a GGUF file, made or not; named by size, time and path."""
    facts = file.stat()
    name = f"{VERSION} {file.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    return Path.home() / ".cache" / "flwr_agent" / "gguf" / hashlib.sha256(name.encode()).hexdigest()[:16]


def ensure(file: Path) -> Path:
    """The folder with the fp32 weights and the tokenizer of a GGUF file.

    Raises:
        ConfigError: it holds no causal LM that transformers can read.
    """
    folder = place(file)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            log.info("converting %s, once on this machine: %s", file, folder)
            unfinished = folder.with_suffix(".tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            _convert(file, unfinished)
            unfinished.rename(folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    disable_progress_bar()
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    with named.blamed("model.path", str(file), "this GGUF cannot be read; download it again, or give a folder"):
        tokenizer = AutoTokenizer.from_pretrained(**where)
        read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    facts = {name: value for name, value in read.config.to_dict().items() if name not in ORIGIN}
    plain = type(read)(AutoConfig.for_model(**facts))
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
