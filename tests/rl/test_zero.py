"""ZeRO on two CPU ranks is one process, on recorded rows: the relative gate of two code paths that sum in other orders."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import config
from policies import policy, save_policy
from recorded import Moved, play
from transformers.integrations import HfDeepSpeedConfig
from trl.trainer.utils import maybe_gather_lm_head_ctx

from flwr_agent.paths import ROOT
from flwr_agent.rl.trl_seam import Seam

pytest.importorskip("deepspeed", reason="needs pip install -e '.[deepspeed]'")

KEYS = {
    "env__name": "tinyguess",
    "strategy__name": "fedprox",
    "strategy__prox_mu": 1.0,
    "trainer__lr": 0.02,
    "trainer__weight_decay": 0.1,
    "trainer__max_grad_norm": 0.2,
    "trainer__micro_rows": 3,
    "algorithm__kl_coef": 0.05,
    "algorithm__group_size": 2,
}
PPO = {
    "algorithm__name": "ppo",
    "algorithm__group_size": 1,
    "trainer__tasks_per_step": 16,
    "trainer__critic_lr": 0.02,
    "trainer__critic_max_grad_norm": 0.05,
}
RELATIVE, COSINE = 1e-3, 0.999
BF16_RELATIVE, BF16_COSINE = 5e-2, 0.99
pytestmark = pytest.mark.slow


def apart(found: Moved, expected: Moved) -> tuple[float, float]:
    """Relative distance and cosine of how weights moved."""
    a, b = (np.concatenate([part[n].ravel() for n in sorted(part) if "step/" not in n]) for part in (found, expected))
    distance = float(np.linalg.norm(a - b) / np.linalg.norm(b))
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    sys.stderr.write(f"distance {distance:.2e}, cosine {cosine:.8f}\n")
    return distance, cosine


def is_same(found: Moved, expected: Moved) -> bool:
    """Weights moved alike, and every step showed the same losses and norms."""
    distance, cosine = apart(found, expected)
    steps = [name for name in expected if "step/" in name]
    same_steps = all(
        found[n].shape == expected[n].shape and np.allclose(found[n], expected[n], rtol=RELATIVE, atol=1e-6)
        for n in steps
    )
    return bool(distance <= RELATIVE and cosine >= COSINE and same_steps)


def in_a_group(folder: Path, **keys: object) -> Moved:
    out = folder / "moved.npz"
    command = [sys.executable, "tests/recorded.py", str(out), json.dumps(KEYS | keys)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "HOME": str(folder), "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(out) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = save_policy(tmp_path_factory.mktemp("policy"))
    return {name: play(config(**KEYS | more, model__path=path)) for name, more in {"grpo": {}, "ppo": PPO}.items()}


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3", "zero2-offload"])
def test_two_ranks_take_the_steps_of_one_process(stage, alone, tmp_path):
    """FedProx is on and its pull is felt, and the norm's clip binds in every step."""
    expected = alone["grpo"]
    assert (expected["step/grad_norm"] > 0.2).all()
    assert (expected["step/prox_norm"][1:] > 0.05).all()
    assert is_same(in_a_group(tmp_path, trainer__deepspeed=stage, trainer__ranks=2, worker__gpus=2), expected)


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_bf16_is_in_the_forwards_alone(stage, tmp_path):
    """Masters, gradients and the base are fp32 as in one process, so the first step's KL is exactly 0."""
    keys = {"model__compute_dtype": "bfloat16"}
    expected = play(config(**KEYS | keys, model__path=save_policy(tmp_path / "alone")))
    found = in_a_group(tmp_path, **keys, trainer__deepspeed=stage, trainer__ranks=2, worker__gpus=2)
    assert found["step/kl"][0] == expected["step/kl"][0] == 0.0
    distance, cosine = apart(found, expected)
    assert distance <= BF16_RELATIVE
    assert cosine >= BF16_COSINE


def test_policy_and_critic_do_not_depend_on_the_ranks(alone, tmp_path):
    found = in_a_group(tmp_path, **PPO, trainer__deepspeed="zero2", trainer__ranks=2, worker__gpus=2)
    assert (alone["ppo"]["step/critic/grad_norm"] > 0.05).any()
    assert is_same(found, alone["ppo"])


def test_the_gate_notices_one_skipped_step(alone, tmp_path):
    skipped = play(config(**KEYS, model__path=save_policy(tmp_path)), skip=3)
    padded = skipped | {name: alone["grpo"][name] for name in skipped if "step/" in name}
    assert not is_same(padded, alone["grpo"])
    assert is_same(alone["grpo"], alone["grpo"])


def test_the_gate_notices_a_missing_proximal_term(alone, tmp_path):
    without = play(config(**KEYS | {"strategy__prox_mu": 0.0}, model__path=save_policy(tmp_path)))
    assert not is_same(without, alone["grpo"])


def test_the_base_is_scored_whole_beside_a_partitioned_policy():
    """On a GPU, TRL's fused head asks the weights of every LM head whether they are gathered."""
    partitioned = HfDeepSpeedConfig({"zero_optimization": {"stage": 3}})
    base = policy()
    with pytest.raises(AttributeError, match="ds_status"):
        maybe_gather_lm_head_ctx(base.lm_head.weight, None)
    Seam.freeze(SimpleNamespace(temperature=1.0), base)
    with maybe_gather_lm_head_ctx(base.lm_head.weight, None):
        assert base.lm_head.weight.shape == policy().lm_head.weight.shape
    assert partitioned.is_zero3()
