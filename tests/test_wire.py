import pytest

from flwr_agent import validate
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError

DELTA = {"strategy.payload": "delta"}
INT8 = DELTA | {"strategy.compression": "int8"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"strategy.compression": "bf16"}, "^strategy.compression='bf16': .*set strategy.payload=delta"),
        ({"privacy.noise_multiplier": 1e200}, "must be at most"),
        ({"privacy.clip": 1e300}, "must be at most"),
        (DELTA | {"strategy.error_feedback": True}, "nothing is lost without compression"),
        (
            INT8 | {"strategy.error_feedback": True, "federation.total_clients": 3},
            "needs every client in every round; set federation.clients_per_round",
        ),
        ({"privacy.mods": "fixedclippin"}, r"^privacy.mods='fixedclippin': no such mod .*did you mean 'fixedclipping'"),
        (
            DELTA | {"privacy.mods": "localdp"},
            "Flower's mods clip the difference of weights.*set strategy.payload=value",
        ),
        (INT8 | {"privacy.mods": "localdp"}, "set strategy.payload=value"),
    ],
)
def test_what_cannot_travel_together_is_refused_with_the_fix(keys, message):
    with pytest.raises(ConfigError, match=message):
        resolve(keys)


def test_what_can_travel_together_is_accepted():
    assert resolve(INT8 | {"strategy.error_feedback": True}).strategy.error_feedback
    assert resolve({"privacy.mods": "fixedclipping, localdp"}).privacy.mods == "fixedclipping, localdp"


@pytest.mark.parametrize(
    ("keys", "unused"),
    [
        ({"privacy.clip": 2.0}, "privacy.clip"),
        ({"privacy.budget": 2.0}, "privacy.budget"),
        ({"privacy.mods": "fixedclipping", "privacy.clip": 2.0, "privacy.local_epsilon": 1.0}, "privacy.local_epsilon"),
        ({"privacy.mods": "localdp", "privacy.budget": 1.0}, "privacy.budget"),
    ],
)
def test_a_privacy_key_without_what_uses_it_is_refused(keys, unused):
    with pytest.raises(ConfigError, match=f"^{unused}=.* does not use this key"):
        validate.check_knobs(resolve(keys), keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"privacy.noise_multiplier": 1.0, "privacy.clip": 2.0, "privacy.delta": 1e-6, "privacy.budget": 3.0},
        {"privacy.mods": "localdp", "privacy.clip": 2.0, "privacy.delta": 1e-6, "privacy.local_epsilon": 3.0},
    ],
)
def test_a_privacy_key_with_what_uses_it_is_accepted(keys):
    validate.check_knobs(resolve(keys), keys)
