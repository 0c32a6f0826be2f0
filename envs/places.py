"""Where an environment's things are: addresses and folders that a user named, read before anything is asked of them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from flwr_agent.errors import ConfigError


def address(key: str, url: str, fix: str) -> SplitResult:
    """The parts of an HTTP address.

    Args:
        key: the setting that named it.
        url: the address.
        fix: what to give instead of one that is none.

    Raises:
        ConfigError: another scheme, no host, or a port that is none.

    Example:
        >>> address("env.url", "http://127.0.0.1:24680", "give http://HOST:PORT").port
        24680
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise ConfigError(key, url, fix)
    return parts


def folder(data_path: str, fix: str) -> Path:
    """The folder that `env.data_path` names, absolute.

    Args:
        data_path: the setting's value.
        fix: what such a folder has to hold.

    Raises:
        ConfigError: there is none that can be read.
    """
    if not data_path:
        raise ConfigError("env.data_path", data_path, f"is empty; {fix}")
    try:
        found = Path(data_path).expanduser().resolve()
        next(found.iterdir(), None)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError("env.data_path", data_path, f"no such folder ({reason}); {fix}") from None
    return found


def unreached(error: BaseException) -> str:
    """Why nothing answers at an address: the first cause of what an HTTP library raised.

    Example:
        >>> unreached(ConnectionRefusedError(111, "Connection refused"))
        '[Errno 111] Connection refused'
    """
    while earlier := error.__cause__ or error.__context__:
        error = earlier
    return str(error) or type(error).__name__
