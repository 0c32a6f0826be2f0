"""`python -m flwr_agent serve`: an environment for clients in other interpreters or on other hosts."""

from __future__ import annotations

import asyncio
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flwr_agent.cli.options import finite
from flwr_agent.cli.worlds import Named
from flwr_agent.errors import ConfigError
from flwr_agent.rl.launch import free_ports

if TYPE_CHECKING:
    from envs.remote.leases import Leases

MAX_THREADS = 256
"""Threads for environments that are not asynchronous, so that none waits for another's step."""

ADVICE = "give --token-file a file with a secret of at least 16 characters, which clients must show"


def serve(  # noqa: PLR0913 (one parameter per option)
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the environment.")
    ] = None,
    *,
    env: Annotated[str, typer.Option(help="Name, entry point or module:Class.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the secret that clients must show; needed beyond this machine.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 1024,
    step_timeout_s: Annotated[
        float, typer.Option(min=0.001, callback=finite, help="Seconds the environment may take for a step.")
    ] = 60,
) -> None:
    """Serve an environment until it is interrupted; clients use it as env.name=remote env.url=http://HOST:PORT."""
    from envs.remote import tokens
    from envs.remote.leases import Leases

    if token_file is None and not tokens.is_loopback(host):
        raise ConfigError("--host", host, f"other machines can reach it; {ADVICE}")
    made = secrets.token_urlsafe(32)
    token = made if token_file is None else tokens.load(token_file, key="--token-file", fix=ADVICE)
    leases = Leases(slots=slots, step_s=step_timeout_s)
    asyncio.run(_serve(Named.of(env, settings or []), leases, host, port or free_ports(1)[0], token))


async def _serve(named: Named, leases: Leases, host: str, port: int, token: str) -> None:
    from envs.remote import tokens
    from envs.remote.server import serving

    stop = _stop_on_signal()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(min(leases.slots, MAX_THREADS)))
    async with serving(
        lambda style, variant: named.to_adapter(variant, style=style), leases, host=host, port=port, token=token
    ) as served:
        with tokens.shown(token, served.port):
            typer.echo(f"serving {named.name} at http://{host}:{served.port} (digest {served.digest})")
            await stop.wait()


def _stop_on_signal() -> asyncio.Event:
    """Set by SIGINT or SIGTERM; a second one ends the process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def ask() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, ask)
    return stop
