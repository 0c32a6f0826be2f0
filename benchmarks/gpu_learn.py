"""SmolLM2 learns on one GPU: demonstrations, then federated GRPO on adapters under SuperNodes, with vLLM rollouts.

`python -m benchmarks.gpu_learn MODEL FOLDER [key=value ...]` writes `FOLDER/learn-LR.json` for each learning rate;
`benchmarks.gpu` runs it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.config import RunConfig
from flwr_agent.report.statistics import wilson
from flwr_agent.rl import tiny
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.demos import demonstrate
from flwr_agent.rl.generate import TransformersGenerator
from flwr_agent.rl.model import load_model, load_tokenizer
from flwr_agent.rl.rollout import Attempt, Rollout
from flwr_agent.seeds import rng, seed_for
from flwr_agent.world import to_adapter

SETTINGS = {
    "strategy.name": "lora_frozen_a",
    "model.lora.rank": 16,
    "model.lora.alpha": 32.0,
    "model.lora.targets": "o_proj,down_proj",
    "federation.rounds": 10,
    "federation.epochs_per_round": 3,
    "trainer.micro_rows": 128,
    "rollout.engine": "vllm",
    "rollout.schedule": "continuous",
    "rollout.eager": True,
    "rollout.gpu_memory": 0.15,
    "rollout.max_prompt_tokens": 384,
    "rollout.max_new_tokens": 24,
    "worker.gpus": 0.5,
    "evaluation.where": "client",
    "evaluation.tasks": 256,
    "evaluation.every": 5,
}
"""WebShop with compact prompts (the defaults), two SuperNodes that share the GPU.

Of the adapters one factor travels, of the layers that write to the residual stream: 60 arrays, since a SuperLink takes
its time over every array of a model, however small.
"""
RECIPE = tiny.Recipe(num_demos=1500, haste=0.85, num_steps=300, batch_rows=32, lr=2e-4, prompt_weight=0.0)
"""One stage of the warm start."""
STAGES, ENOUGH, PROBES = 4, 0.10, 96
"""A warm start ends after the first stage that wins this share of so many training tasks, or after the last."""
RATES = (2e-3,)
log = logging.getLogger("flwr_agent.rl.tiny")


def main(model: str, folder: Path, extra: list[str]) -> None:
    """Imitate, then learn at each rate, side by side."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    log.setLevel(logging.DEBUG)
    settings = SETTINGS | {"model.path": model} | overrides.parse(extra)
    start = time.perf_counter()
    policy = warm_start(presets.load(settings), folder / "warm")
    facts = {"warm_start_s": time.perf_counter() - start}
    log.info("the warm start took %.0f s", facts["warm_start_s"])
    rates = [settings["trainer.lr"]] if "trainer.lr" in settings else RATES
    runs = [
        (rate, begin(folder / f"run-{rate:g}", settings | {"model.path": policy, "trainer.lr": rate})) for rate in rates
    ]
    for rate, process in runs:
        facts_of = {"lr": rate, "exit": process.wait(), "run_s": time.perf_counter() - start} | facts
        seen = facts_of | summary(folder / f"run-{rate:g}" / "ledger.jsonl")
        (folder / f"learn-{rate:g}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


def warm_start(config: RunConfig, folder: Path) -> str:
    """A folder with the model after it has imitated a hasty expert; made once."""
    if not folder.exists():
        chat, adapter = Chat(load_tokenizer(config)), to_adapter(config)
        tasks = adapter.tasks("demo")
        order = rng(RECIPE.version, "demos").permutation(len(tasks))[: RECIPE.num_demos]
        demos = demonstrate(
            adapter, [tasks[i] for i in order], haste=RECIPE.haste, history=config.rollout.history, seed=RECIPE.version
        )
        log.info("%d turns of %d tasks are shown", len(demos), len(order))
        policy = load_model(config, dtype=torch.float32)
        for stage in range(1, STAGES + 1):
            # Weights move inside the block, so that no cast of them may be kept.
            with torch.autocast(policy.device.type, torch.bfloat16, cache_enabled=False):
                tiny.imitate(policy, chat, demos, replace(RECIPE, version=stage))
                won = probe(policy, chat, config)
            log.info("stage %d wins %.3f of %d training tasks", stage, won, PROBES)
            if won >= ENOUGH:
                break
        policy.save_pretrained(folder)
        chat.tokenizer.save_pretrained(folder)
    return str(folder)


def probe(policy: PreTrainedModel, chat: Chat, config: RunConfig) -> float:
    """Share of training tasks that the policy wins, sampled as in an evaluation."""
    adapter = to_adapter(config)
    generator = TransformersGenerator(policy, eos_ids=sorted(chat.eos_ids), pad_id=chat.pad_id)
    rollout = Rollout(adapter, generator, chat, replace(config.rollout, schedule="lockstep"))
    attempts = [
        Attempt(task, 0, seed_for("probe", task.id), config.evaluation.temperature)
        for task in adapter.tasks("train")[:PROBES]
    ]
    episodes = rollout.play(attempts)
    for turn in episodes[0].turns:
        log.info("probe: %d tokens -> %r", len(turn.prompt_ids), chat.text(turn.response_ids))
    return sum(episode.success for episode in episodes) / len(episodes)


def begin(output: Path, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the run under SuperNodes of its own."""
    keys = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "flwr_agent", "run", "--deployment", f"output_dir={output}", *keys]
    return subprocess.Popen(command)  # noqa: S603


def summary(ledger: Path) -> dict[str, Any]:
    """Success by round with its 95 % interval, and the seconds of every client-round."""
    lines = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.is_file() else []
    evaluations = [
        {
            "round": line["round"],
            **{mode: interval(line["outcomes"][f"{mode}/success"]) for mode in ("sampled", "greedy")},
        }
        for line in lines
        if line["kind"] == "evaluation"
    ]
    clients = [line for line in lines if line["kind"] == "client"]
    return {
        "evaluations": evaluations,
        "clients": clients,
        "rounds": [line for line in lines if line["kind"] == "round"],
    }


def interval(outcomes: Sequence[float]) -> tuple[float, float, float]:
    """Share of successes with Wilson's interval."""
    low, high = wilson(sum(outcomes), len(outcomes))
    return sum(outcomes) / len(outcomes), low, high


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), sys.argv[3:])
