"""Weights into a vLLM worker, exactly, in place; `WeightLoader` is the extension by which other processes take them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from flwr_agent.rl import shared
from flwr_agent.rl.engine import Weights


@torch.no_grad()
def load_into(worker: Any, weights: Weights) -> None:
    """Copy `weights` over the model of a vLLM worker.

    On CPU the linear layers keep their weights packed, so they are laid out anew; a tied LM head owns a packed copy
    of the embedding that nothing else refreshes.
    """
    from vllm.platforms import current_platform

    runner = worker.model_runner
    if not current_platform.is_cpu():
        runner.get_model().load_weights(weights)
        return
    runner.reload_weights(weights_iterator=list(weights), is_checkpoint_format=True)
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in runner.get_model().modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


@contextmanager
def in_file(weights: Weights) -> Iterator[str]:
    """A safetensors file in shared memory for the length of the block."""
    with shared.folder() as folder:
        file = folder / "weights.safetensors"
        save_file({name: value.detach().cpu().contiguous() for name, value in weights}, file)
        yield str(file)


class WeightLoader:
    """A vLLM worker extension: `vllm serve ... --worker-extension-cls flwr_agent.rl.vllm_weights.WeightLoader`."""

    model_config: Any
    """The worker's own."""

    def load_file(self, path: str) -> None:
        """Take over the weights in a safetensors file.

        Raises:
            RuntimeError: the server would tell other log-probs than those that answers were sampled with.
        """
        if self.model_config.logprobs_mode != "processed_logprobs":
            raise RuntimeError("start the server with --logprobs-mode processed_logprobs")
        load_into(self, load_file(path).items())
