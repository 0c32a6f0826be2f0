"""A vLLM server that is none: refused by its key, soon."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fakes import config

from flwr_agent.errors import ConfigError
from flwr_agent.rl.vllm_server import ServedVLLM
from flwr_agent.validate import check
from strategies import FedAvg


@pytest.fixture
def says():
    """Starts an HTTP server that answers everything with one text; returns its address."""
    servers = []

    def start(text: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("answer", [{}, [], {"data": []}, {"data": [3]}, "no JSON"])
def test_another_service_at_the_address_is_refused(says, answer):
    url = says(answer if answer == "no JSON" else json.dumps(answer))
    with pytest.raises(ConfigError, match=rf"rollout.server_url='{url}': no vLLM server answers there"):
        ServedVLLM(config(rollout__engine="vllm", rollout__server_url=url), eos_ids=[0])


@pytest.mark.parametrize("url", ["garbage", "http://", "ftp://x", "http://localhost:99999", "localhost:8000"])
def test_what_is_no_address_is_refused_before_anything_starts(url):
    with pytest.raises(ConfigError, match=r"rollout.server_url='.*': must be http://HOST:PORT"):
        check(
            config(rollout__engine="vllm", rollout__server_url=url),
            {},
            load_strategy=lambda _: FedAvg(total_clients=2, clients_per_round=2),
        )
