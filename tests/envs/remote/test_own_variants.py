"""Worlds of one's own around a served environment: made by the client's code, never by the server."""

import pytest

from envs import registry
from envs.base import Variant
from envs.remote import Remote
from envs.wrapper import Wrapper
from flwr_agent.errors import ConfigError
from tests.envs.remote.hosting import builder, hosted


class Louder(Wrapper):
    def parse_action(self, model_text):
        action, is_valid = self.inner.parse_action(model_text)
        return f"{action}!", is_valid


def louder(adapter, params):
    return Louder(adapter)


def test_a_server_loads_no_code_that_a_client_names(tmp_path):
    with hosted(builder("tinyguess"), tmp_path) as host:
        with pytest.raises(ConfigError, match=r"partition\.strategy='os:getcwd': names code, which no server takes"):
            Remote(**host.settings, style="paper", variant=Variant("os:getcwd"))
        here = registry.create("remote", host.settings, variant=Variant(f"{__name__}:louder"))
        assert here.parse_action("<answer>25</answer>") == ("25!", True)
