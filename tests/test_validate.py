import pytest

from flwr_agent import presets
from flwr_agent.errors import ConfigError
from flwr_agent.validate import check_knobs


@pytest.mark.parametrize(
    ("preset", "key", "value"),
    [
        ("ppo", "algorithm.scale_rewards", "none"),
        ("none", "algorithm.gae_lambda", 0.9),
        ("none", "trainer.critic_lr", 0.1),
    ],
)
def test_a_knob_of_the_other_algorithm_is_refused(preset: str, key: str, value: object):
    layers = presets.read({"preset": preset, key: value})
    with pytest.raises(ConfigError, match=rf"^{key}=.*does not use this key"):
        check_knobs(presets.build(layers), layers.flat)
