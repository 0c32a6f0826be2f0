"""A WebSocket server that asks for a token, answers `GET /health`, and bounds what a client may send."""

from __future__ import annotations

import errno
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from envs.remote.wire import MAX_BYTES
from flwr_agent.errors import ConfigError

CLOSE_S = 1.0
"""Seconds a client gets to say goodbye."""
Health = Callable[[], Mapping[str, Any]]
Handle = Callable[[ServerConnection], Awaitable[None]]


async def listen(handle: Handle, health: Health, *, host: str, port: int, token: str | None) -> Server:
    """A server that has begun to listen; `token=None` asks for none.

    No keepalive pings are sent: a trainer may be busy for minutes between two requests.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def answer(connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong\n")
        if request.path == "/health":
            response = connection.respond(HTTPStatus.OK, json.dumps(health()))
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        return None if request.path == "/ws" else connection.respond(HTTPStatus.NOT_FOUND, "see /health and /ws\n")

    async def handle_quietly(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await handle(connection)

    try:
        return await serve(
            handle_quietly,
            host,
            port,
            process_request=answer,
            compression=None,
            ping_interval=None,
            close_timeout=CLOSE_S,
            max_size=MAX_BYTES,
        )
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ConfigError("port", port, f"{host}:{port} cannot be bound ({error}); choose another port") from error
        raise ConfigError("host", host, f"is no address of this machine ({error}); choose another host") from error


def port_of(server: Server) -> int:
    """The port a server listens on."""
    return int(server.sockets[0].getsockname()[1])
