"""Where a running cluster is: asked for, looked up, and heard from before Ray waits for it."""

from __future__ import annotations

import os
import socket
import threading
from importlib import import_module
from typing import Any

from ray._private.services import get_ray_address_from_environment
from ray.exceptions import AuthenticationError

from raydr.errors import OutputError

_PATIENCE_S = 4.0
"""Seconds for each of three questions: a name, a port, a cluster. Ray itself would wait for 35 and print."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How HTTP/2, and so any speaker of gRPC, begins: a preface, and settings that set nothing."""
_SETTINGS = 4
"""The type of the frame that must be the answer."""


def cluster_asked_for(address: str | None) -> str | None:
    """Return the address of the cluster to join; None to start a Ray of one's own.

    As everywhere in Ray, ``RAY_ADDRESS`` stands for an address that is not given, or ``auto``; ``local`` is none.
    """
    if address in (None, "", "auto"):
        address = os.environ.get("RAY_ADDRESS") or address
    return None if address in (None, "", "local") else address


def require_answer(address: str) -> str:
    """Return where a cluster answers, as HOST:PORT, within seconds and quietly.

    Raises
    ------
    OutputError
        If nobody answers, or somebody else, or the cluster does not let this process in.
    """
    if "://" in address:
        raise OutputError(
            f"{address!r} is an address of Ray's client, which cannot bring back a run's events as they come. Give"
            " the HOST:PORT of the cluster's head (6379 as a rule), from a machine of the cluster."
        )
    found = _found(address)
    host, _, port = found.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise OutputError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, or auto.")
    if not _speaks_grpc(address, host.strip("[]"), int(port)):
        raise OutputError(
            f"What answers at {address!r} is no Ray cluster. Give the HOST:PORT that `ray start --head` named (6379"
            " as a rule, not the dashboard's), or leave --address out to run on this machine."
        )
    _require_admission(address, found)
    return found


def _found(address: str) -> str:
    if address != "auto":
        return address
    try:
        found: str = get_ray_address_from_environment("auto", None)
    except ConnectionError as error:
        raise _nobody(address, "no Ray runs on this machine") from error
    return found


def _speaks_grpc(address: str, host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE_S) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.sendall(_HELLO)
            answer = b""
            while len(answer) < 4 and (more := connection.recv(64)):
                answer += more
    except TimeoutError as error:
        raise _nobody(address, "no answer") from error
    except OSError as error:
        raise _nobody(address, (error.strerror or str(error)).lower()) from error
    return len(answer) >= 4 and answer[3] == _SETTINGS


def _require_admission(address: str, found: str) -> None:
    """Ask the cluster who it is, in a thread, since Ray's library answers neither time-outs nor Ctrl-C meanwhile."""
    library: Any = import_module("ray._raylet")  # whose types are not told
    refusal: list[BaseException] = []

    def ask() -> None:
        try:
            library.GcsClient(address=found)
        except BaseException as error:
            refusal.append(error)

    asking = threading.Thread(target=ask, name="raydr-address", daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    if refusal and isinstance(refusal[0], AuthenticationError):
        raise OutputError(
            f"The Ray cluster at {address!r} asks for a token that this process does not have: set"
            " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as they were where it was started."
        ) from refusal[0]
    if refusal or asking.is_alive():
        raise _nobody(address, "no cluster makes itself known")


def _nobody(address: str, reason: str) -> OutputError:
    return OutputError(
        f"There is no Ray cluster at {address!r} ({reason}): start one with `ray start --head`, correct --address or"
        " RAY_ADDRESS, or leave both out to run on this machine."
    )
