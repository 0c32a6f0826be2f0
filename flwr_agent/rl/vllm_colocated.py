"""vLLM on the trainer's device, in the worker's own process; it sleeps while the trainer works.

Beside a client of several GPUs it is a process of its own: vLLM takes the group that PyTorch's processes form for the
one its model is spread over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, WorkerError
from flwr_agent.rl import spawn
from flwr_agent.rl.engine import Weights
from flwr_agent.rl.generate import Completion, Request
from flwr_agent.rl.model import compute_dtype

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams


_RESERVED = 2**30
"""Bytes for activations and CUDA graphs."""


class ColocatedVLLM:
    """Continuous batching: what is submitted while others are decoded joins them at the next token.

    Args:
        config: the run.
        source: folder or id of the policy; its weights are replaced at every load.
        model: the trainer's, for its size.
        eos_ids: tokens that end an answer.

    Raises:
        ConfigError: the share of the GPU is too small for this model.
    """

    def __init__(self, config: RunConfig, source: str, model: torch.nn.Module, *, eos_ids: Sequence[int]):
        self._eos_ids = list(eos_ids)
        self._queue: deque[Request] = deque()
        self._is_apart = config.trainer.ranks > 1
        with spawn.engine_start(is_apart=self._is_apart):
            self.llm = _start(config, source, _memory(config, model))
        self._engine = self.llm.llm_engine
        self.llm.sleep(level=2)

    def load(self, weights: Weights) -> None:
        """Wake up with exactly these weights and an empty prefix cache."""
        from flwr_agent.rl.vllm_weights import in_file, load_into

        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what training left there is not the engine's to use
        self.llm.wake_up(tags=["weights"])
        if self._is_apart:
            with in_file(weights) as path:
                self.llm.collective_rpc("load_file", kwargs={"path": path})
        else:
            load_into(self._engine.model_executor.driver_worker, weights)
        self.llm.wake_up(tags=["kv_cache"])
        if not self.llm.reset_prefix_cache():
            raise WorkerError("vLLM kept prefixes of earlier weights in its cache")

    def submit(self, request: Request) -> None:
        """Queue one request; safe while another thread collects."""
        self._queue.append(request)

    def collect(self) -> list[Completion]:
        """Decode until at least one answer is complete; returns those that are."""
        done: list[Completion] = []
        while not done:
            for _ in range(len(self._queue)):
                request = self._queue.popleft()
                prompt = {"prompt_token_ids": request.prompt_ids}
                self._engine.add_request(str(request.key), prompt, to_params(request, self._eos_ids))
            if not self._engine.has_unfinished_requests():
                break
            done = [to_completion(output) for output in self._engine.step() if output.finished]
        return done

    def sleep(self) -> None:
        """Drop weights and cache; requests that are still open are aborted."""
        self._queue.clear()
        self.llm.sleep(level=2)


def context_length(config: RunConfig) -> int:
    """Tokens that prompt and answer may take together."""
    rollout = config.rollout
    answers = rollout.max_turns if rollout.mode == "concat" else 1
    return rollout.max_prompt_tokens + answers * rollout.max_new_tokens


def to_params(request: Request, eos_ids: Sequence[int]) -> SamplingParams:
    """Sampling from the whole distribution, by a seed of the request's own, until one of `eos_ids`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=request.max_new_tokens,
        temperature=request.temperature,
        seed=request.seed,
        logprobs=0,
        flat_logprobs=True,
        ignore_eos=True,
        stop_token_ids=list(eos_ids),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def to_completion(output: Any) -> Completion:
    """VLLM's output as ours; of each position it names the sampled token's log-prob alone."""
    answer = output.outputs[0]
    return Completion(int(output.request_id), list(answer.token_ids), list(answer.logprobs.logprobs))


def _memory(config: RunConfig, model: torch.nn.Module) -> dict[str, Any]:
    """What the engine may take of the GPU.

    Its cache is given in bytes, since vLLM would otherwise measure what is free, which neighbours on a shared GPU change.
    """
    if not torch.cuda.is_available():
        return {}
    share = config.rollout.gpu_memory * min(config.worker.gpus, 1.0)
    size = torch.finfo(compute_dtype(config)).bits // 8 * sum(p.numel() for p in model.parameters())
    cache = int(share * torch.cuda.mem_get_info()[1]) - size - _RESERVED
    if cache < _RESERVED:
        fix = f"leaves vLLM no cache beside a model of {size / 2**30:.1f} GiB; raise it, or worker.gpus"
        raise ConfigError("rollout.gpu_memory", config.rollout.gpu_memory, fix)
    return {"gpu_memory_utilization": share, "kv_cache_memory_bytes": cache, "enable_sleep_mode": True}


def _start(config: RunConfig, source: str, memory: dict[str, Any]) -> LLM:
    from vllm import LLM

    return LLM(
        source,
        skip_tokenizer_init=True,
        generation_config="vllm",
        dtype=str(compute_dtype(config)).removeprefix("torch."),
        max_model_len=context_length(config),
        logprobs_mode="processed_logprobs",
        enforce_eager=config.rollout.eager,
        disable_log_stats=True,
        seed=0,
        worker_extension_cls="flwr_agent.rl.vllm_weights.WeightLoader",
        **memory,
    )
