import re

import pytest

from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"federation.clients_per_round": 3}, r"^federation.clients_per_round=3: cannot exceed .*total_clients=2"),
        ({"federation.min_clients": 3}, r"^federation.min_clients=3: cannot exceed .*clients_per_round=2"),
        (
            {"federation.min_clients": 3, "federation.total_clients": 0, "partition.strategy": "site"},
            r"^federation.min_clients=3: cannot exceed .*clients_per_round=2",
        ),
        ({"federation.total_clients": 99999999999}, r"^federation.total_clients=99999999999: must be at most 1e\+06"),
        ({"algorithm.baseline": "none"}, r"^algorithm.scale_rewards='std': .*use none"),
        (
            {"algorithm.name": "ppo"},
            r"^algorithm.group_size=8: .*trainer.tasks_per_step to 8 times as many.*preset ppo",
        ),
        ({"algorithm.group_size": 1}, r"^algorithm.group_size=1: must be at least 2: grpo compares"),
        ({"algorithm.credit": "chained"}, r"^algorithm.credit='chained': .*algorithm.name=ppo"),
        ({"algorithm.dual_clip": 1.1}, r"^algorithm.dual_clip=1.1: must be above 1 \+ algorithm.clip = 1.2, or 0"),
        ({"trainer.optimizer_reset": "never"}, r"^trainer.optimizer_reset='never': .*set federation.total_clients=1"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_with_the_fix(keys, message):
    with pytest.raises(ConfigError, match=message):
        resolve(keys)


def test_the_fixes_that_are_named_are_accepted():
    one = {"federation.total_clients": 1, "federation.clients_per_round": 1}
    assert resolve(one, {"trainer.optimizer_reset": "never"}).trainer.optimizer_reset == "never"
    assert resolve({"algorithm.baseline": "none", "algorithm.scale_rewards": "none"}).algorithm.baseline == "none"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainer.lr": float("inf")}, "trainer.lr=inf: must be a finite number"),
        ({"algorithm.clip": float("nan")}, "algorithm.clip=nan: must be a finite number"),
        ({"algorithm.kl_coef": "inf"}, "algorithm.kl_coef=inf: must be a finite number"),
        ({"algorithm.kl_coef": "-.inf"}, "algorithm.kl_coef=-inf: must be a finite number"),
        ({"algorithm.kl_coef": "NaN"}, "algorithm.kl_coef=nan: must be a finite number"),
        ({"algorithm.kl_coef": "much"}, "must be of type float, not str"),
        ({"algorithm.clip": 1e308}, "algorithm.clip=1e+308: must be at most 1e+06"),
        ({"algorithm.kl_coef": 1e308}, "algorithm.kl_coef=1e+308: must be at most 1e+06"),
        ({"algorithm.entropy_coef": 1e308}, "algorithm.entropy_coef=1e+308: must be at most 1e+06"),
        ({"trainer.lr": 1e308}, "trainer.lr=1e+308: must be at most 1000"),
        ({"trainer.critic_lr": 1e308}, "trainer.critic_lr=1e+308: must be at most 1000"),
        ({"trainer.weight_decay": 1e308}, "trainer.weight_decay=1e+308: must be at most 1000"),
        ({"model.lora.alpha": 1e300}, "model.lora.alpha=1e+300: must be at most 1e+06"),
        ({"model.lora.rank": 2**62}, "must be at most 65536"),
        ({"seed": 2**63}, "seed=9223372036854775808: must fit in 64 bits"),
        ({"trainer.tasks_per_step": 20_001}, "times federation.epochs_per_round=5 exceeds 100000 task seeds"),
    ],
)
def test_numbers_that_no_run_can_use_are_refused(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(values)


def test_episodes_are_kept_only_where_they_are_the_server_s_own():
    assert resolve({"report.episodes": 2}).report.episodes == 2
    with pytest.raises(ConfigError, match=r"report.episodes=2: episodes never leave a client"):
        resolve({"report.episodes": 2, "evaluation.where": "client"})


@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_training_samples_from_the_whole_distribution(name):
    with pytest.raises(ConfigError, match=rf"^rollout.{name}=0.9: training samples from the whole distribution"):
        resolve({f"rollout.{name}": 0.9})
