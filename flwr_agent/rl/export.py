"""A round's model as a Hugging Face folder: weights, tokenizer, configuration and a card that says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from peft import PeftModel

from flwr_agent import writable
from flwr_agent.arrays import ACTOR, CRITIC, part
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.requests import Arrays
from flwr_agent.rl import critic
from flwr_agent.rl.model import load_policy, load_tokenizer
from flwr_agent.rl.weights import load_weights

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [flwr-agent, federated-learning, reinforcement-learning]
---
# {title}

{what}

| | |
| --- | --- |
{facts}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer
model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
```
"""


def export(config: RunConfig, arrays: Arrays, out: Path, *, facts: Mapping[str, str]) -> list[Path]:
    """Write the policy to `out`; adapters are merged into it and also written to `out/adapter`, a critic to `out/critic`.

    Args:
        config: the run's.
        arrays: a checkpoint's.
        out: a folder that is made; it must not hold anything yet.
        facts: what the card says of the model's origin.

    Returns:
        The folders written, the policy's first.

    Raises:
        ConfigError: the folder holds something, or the run's own model is no longer to be had.
        ProtocolError: the arrays are not of the run's model.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ConfigError("--out", str(out), "exists and is not an empty folder; choose another")
    policy, tokenizer, written = load_policy(config), load_tokenizer(config), [out]
    load_weights(policy, part(arrays, ACTOR))
    what = f"{config.model.path} after federated {config.algorithm.name.upper()} on {config.env.name}."
    with writable.whole(out) as unfinished:
        if isinstance(policy, PeftModel):
            policy.save_pretrained(str(unfinished / "adapter"))
            written.append(out / "adapter")
            what += f" LoRA of rank {config.model.lora.rank}, merged here and by itself in `adapter/`."
            policy = policy.merge_and_unload()
        if values := part(arrays, CRITIC):
            model = critic.build(policy)
            load_weights(model, values)
            model.save_pretrained(unfinished / "critic")
            written.append(out / "critic")
        policy.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
        (unfinished / "README.md").write_text(CARD.format(title=out.name, what=what, facts=rows), encoding="utf-8")
    return written
