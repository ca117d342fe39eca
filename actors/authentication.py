"""A Ray of one's own is closed to others: only who knows its token may speak to it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from raydr.actors.ray_private import raylet
from raydr.errors import RunError


def closed_to_others() -> dict[str, str]:
    """Environment of a Ray about to start, by which it answers to this process and its own alone.

    Ray listens on all interfaces, and who reaches its ports may run code there. Whoever has set ``RAY_AUTH_MODE``
    themselves decides themselves.
    """
    if os.environ.get("RAY_AUTH_MODE"):
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def environment_of_ray(variables: Mapping[str, str]) -> Iterator[None]:
    """Start Ray inside with these in the environment, from which its processes inherit them; then put it back.

    Ray's library reads its settings when it is imported and keeps them, so they are read again on the way in; on the
    way out they stay as they are, since the connection needs them: see :func:`forget`.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        _read_again()
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def require_closed() -> None:
    """Raise RunError if Ray's library did not take the token up: better no run than an open one."""
    token = raylet.AuthenticationMode.TOKEN
    if os.environ.get("RAY_AUTH_MODE") == "token" and raylet.get_authentication_mode() != token:
        raise RunError(
            "This Ray cannot be closed to others on the network: it did not take up a token. Install the release of"
            " Ray that raydr was tested with, or set RAY_AUTH_MODE=disabled to run it open."
        )


def forget() -> None:
    """Have Ray's library go by the environment again, as it did before a Ray of ours was started."""
    _read_again()


def _read_again() -> None:
    """Have Ray's library read its settings and token from the environment, whenever it was imported."""
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    raylet.Config.initialize("")
