"""What this package takes from TRL: fails when TRL changes under it, and says where."""

import inspect
import tomllib
from importlib.metadata import version

import pytest
import torch
from fakes import config
from packaging.requirements import Requirement
from policies import chat, policy, random_rows, watched_scores
from trl import GRPOConfig, GRPOTrainer

from flwr_agent.paths import ROOT
from flwr_agent.rl import trl_seam
from flwr_agent.rl.batch import is_own, right_pad, to_batch
from flwr_agent.rl.trl_seam import Seam

SIGNATURES = {
    "_prepare_for_training": ["self", "max_steps", "train_dataloader", "resume_from_checkpoint"],
    "_compute_loss": ["self", "model", "inputs"],
    "_get_per_token_logps_and_entropies": [
        *["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"],
        *["compute_entropy", "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images"],
        *["pixel_attention_mask", "spatial_shapes", "num_tiles", "image_sizes", "token_type_ids"],
        *["mm_token_type_ids", "image_position_ids"],
    ],
}
BAD = [float("nan"), float("inf"), -float("inf"), 50.0]


def seam_of(**keys):
    return Seam(policy(), chat().tokenizer, config(**{"env__name": "tinyguess"} | keys))


def test_a_process_trains_on_one_of_the_gpus_that_it_sees(monkeypatch):
    class Several(GRPOConfig):
        def __post_init__(self):
            super().__post_init__()
            self._n_gpu = 2

    monkeypatch.setattr(trl_seam, "GRPOConfig", Several)
    seam = seam_of()
    assert seam.args.n_gpu == 1
    assert seam.model_wrapped is seam.model


def batch_of(seam, seed=0):
    rows = random_rows(8, seed)
    batch = to_batch(rows, pad_id=0, num_tokens=sum(row.num_tokens for row in rows), device="cpu")
    noise = torch.Generator().manual_seed(seed)
    for name in ("old_per_token_logps", "ref_per_token_logps"):
        batch[name] = seam.score(seam.model, batch) + 0.5 * torch.randn(batch["advantages"].shape, generator=noise)
    return batch


def outcome(seam, batch):
    seam.model.zero_grad()
    loss = seam.loss(batch)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in seam.model.parameters())]


def test_the_installed_trl_is_within_the_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = (r for r in map(Requirement, project["optional-dependencies"]["train"]) if r.name == "trl")
    assert bound.specifier.contains(version("trl")), f"trl {version('trl')} is outside {bound}: port trl_seam.py first"


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_private_methods_keep_their_signatures(name):
    found = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)
    assert found == SIGNATURES[name], (
        f"TRL changed GRPOTrainer.{name}: read it again and port flwr_agent/rl/trl_seam.py"
    )


def test_the_seam_overrides_one_method_of_trl():
    overridden = {name for name in vars(Seam) if hasattr(GRPOTrainer, name) and not name.startswith("__")}
    assert overridden == {"_get_per_token_logps_and_entropies"}


def test_no_term_of_trl_is_on_beyond_surrogate_and_kl():
    seam = seam_of(algorithm__kl_coef=0.02, algorithm__clip=0.3, rollout__temperature=0.7)
    assert (seam.beta, seam.temperature, seam.loss_type) == (0.02, 0.7, "dapo")
    assert (seam.epsilon_low, seam.epsilon_high, seam.args.delta) == (0.3, 0.3, None)
    assert (seam.importance_sampling_level, seam.top_entropy_quantile) == ("token", 1.0)
    assert (seam.args.use_bias_correction_kl, seam.off_policy_mask_threshold) == (False, None)
    assert not seam._entropy_bonus_enabled
    assert not seam.aux_loss_enabled
    assert seam.ref_model is None


def test_the_gradient_at_tokens_of_others_is_exactly_zero():
    seam = seam_of(algorithm__kl_coef=0.1)
    batch = batch_of(seam)
    seen = watched_scores(seam)
    seam.loss(batch).backward()
    (logps,) = seen
    own = is_own(batch)
    assert 0 < own.sum() < batch["completion_mask"].sum() < own.numel()
    assert (logps.grad[~own] == 0.0).all()
    assert (logps.grad[own] != 0.0).all()


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["advantages", "old_per_token_logps", "ref_per_token_logps"])
def test_what_stands_at_tokens_of_others_changes_no_bit(name, value):
    seam = seam_of(algorithm__kl_coef=0.1)
    batch = batch_of(seam)
    expected = outcome(seam, batch)
    batch[name] = batch[name].masked_fill(~is_own(batch), value)
    assert all(torch.equal(a, b) for a, b in zip(outcome(seam, batch), expected, strict=True))


def test_what_stands_at_the_models_tokens_does_change_the_gradient():
    seam = seam_of(algorithm__kl_coef=0.1)
    for name in ("advantages", "old_per_token_logps", "ref_per_token_logps"):
        batch = batch_of(seam)
        expected = outcome(seam, batch)
        batch[name] = batch[name] + 0.3 * is_own(batch)
        assert not all(torch.equal(a, b) for a, b in zip(outcome(seam, batch), expected, strict=True)), name


def test_padding_changes_no_score():
    seam = seam_of()
    rows = random_rows(6)
    together = seam.score(seam.model, to_batch(rows, pad_id=0, num_tokens=1, device="cpu"))
    alone = [seam.score(seam.model, to_batch([row], pad_id=5, num_tokens=1, device="cpu"))[0] for row in rows]
    mask = right_pad([[1] * len(row) for row in alone], 0).bool()
    torch.testing.assert_close(together[mask], torch.cat(alone), rtol=1e-5, atol=1e-5)
