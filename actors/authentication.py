"""Token authentication of a Ray that raydr starts, so that other users cannot connect."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from raydr.actors.ray_private import raylet
from raydr.errors import RunError


def closed_to_others() -> dict[str, str]:
    """Return environment variables with which a new Ray answers only this process and its own processes.

    Ray listens on all interfaces, and anyone who reaches its ports may run code there. A ``RAY_AUTH_MODE`` set by the
    user is kept.
    """
    if os.environ.get("RAY_AUTH_MODE"):
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def environment_of_ray(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables while Ray starts, so that its processes inherit them; then restore them.

    Ray's library reads its settings when it is imported, so they are read again on entry. They are kept on exit,
    because the connection needs them: see :func:`forget`.
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
    """Raise RunError if Ray's library did not accept the token: no run is better than an open one."""
    token = raylet.AuthenticationMode.TOKEN
    if os.environ.get("RAY_AUTH_MODE") == "token" and raylet.get_authentication_mode() != token:
        raise RunError(
            "Cannot protect this Ray from other users on the network: it did not accept a token. Install a release"
            " of Ray that raydr was tested with, or set RAY_AUTH_MODE=disabled to run without protection."
        )


def forget() -> None:
    """Let Ray's library use the environment again, as before raydr started a Ray."""
    _read_again()


def _read_again() -> None:
    """Let Ray's library read its settings and token from the environment again."""
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    raylet.Config.initialize("")
