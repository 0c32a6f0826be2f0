"""A vLLM server of this machine as the engine: answers over HTTP, weights through a file in shared memory.

Start it with `START`; the client that is awake holds the server alone, by a lock.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
from filelock import FileLock

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, WorkerError
from flwr_agent.rl.engine import Weights
from flwr_agent.rl.generate import Completion, Request
from flwr_agent.rl.vllm_weights import in_file

START = (
    "VLLM_SERVER_DEV_MODE=1 PYTHONPATH=CHECKOUT vllm serve MODEL --generation-config vllm --logprobs-mode processed_logprobs "
    "--worker-extension-cls flwr_agent.rl.vllm_weights.WeightLoader"
)
_TIMEOUT_S = 600.0
_PROBE_S = 10.0
_MAX_OPEN = 512


class ServedVLLM:
    """Continuous batching by the server: every open request is a connection.

    Args:
        config: the run; `rollout.server_url` is the address.
        eos_ids: tokens that end an answer.

    Raises:
        ConfigError: nothing answers there.
    """

    def __init__(self, config: RunConfig, *, eos_ids: Sequence[int]):
        self._url, self._eos_ids = config.rollout.server_url.rstrip("/"), list(eos_ids)
        self._pool = ThreadPoolExecutor(_MAX_OPEN, thread_name_prefix="vllm-server")
        self._open: set[Future[Completion]] = set()
        name = hashlib.sha256(self._url.encode()).hexdigest()[:16]
        self._lock = FileLock(Path(tempfile.gettempdir()) / f"flwr-agent-server-{name}.lock", thread_local=False)
        try:
            self._model = str(self._call("GET", "/v1/models", timeout_s=_PROBE_S)["data"][0]["id"])
        except (WorkerError, KeyError, TypeError, IndexError) as error:
            fix = f"no vLLM server answers there; start one with `{START}`"
            raise ConfigError("rollout.server_url", self._url, fix) from error

    def load(self, weights: Weights) -> None:
        """Take the server and give it exactly these weights, with an empty prefix cache."""
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            path = stack.enter_context(in_file(weights))
            self._call("POST", "/collective_rpc", {"method": "load_file", "kwargs": {"path": path}})
            if not self._call("POST", "/reset_prefix_cache")["success"]:
                raise WorkerError(f"the vLLM server at {self._url} is busy for others; give each run its own")
            self._lock.acquire()  # stays until `sleep`

    def submit(self, request: Request) -> None:
        """Send one request; safe while another thread collects."""
        self._open.add(self._pool.submit(self._ask, request))

    def collect(self) -> list[Completion]:
        """Wait until at least one answer is complete; returns those that are."""
        done, _ = wait(set(self._open), return_when=FIRST_COMPLETED)
        for future in done:
            self._open.discard(future)
        return [future.result() for future in done]

    def sleep(self) -> None:
        """Let others have the server; what is still open is waited for and dropped."""
        for future in self._open:
            future.cancel()
        wait(self._open)
        self._open.clear()
        self._lock.release()

    def _ask(self, request: Request) -> Completion:
        wanted = {
            "model": self._model,
            "prompt": request.prompt_ids,
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "logprobs": 0,
            "ignore_eos": True,
            "stop_token_ids": self._eos_ids,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        choice = self._call("POST", "/v1/completions", wanted)["choices"][0]
        return Completion(request.key, choice["token_ids"], choice["logprobs"]["token_logprobs"])

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            answer = requests.request(method, self._url + path, json=body, timeout=timeout_s)
            answer.raise_for_status()
            return answer.json()
        except requests.RequestException as error:
            raise WorkerError(f"the vLLM server failed at {path}: {error}; start it with `{START}`") from error
