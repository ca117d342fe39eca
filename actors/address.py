"""Where a running cluster is: asked for, looked up, and heard from before Ray waits for it."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack

from raydr.actors.ray_private import ASK_FOR_ADMISSION, services
from raydr.errors import OutputError

_PATIENCE_S = 8.0
"""Seconds for all questions together. Ray itself would wait for 35, print, and not hear a Ctrl-C."""
_SILENCE_S = 3.0
"""Seconds in which a port must answer."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How HTTP/2, and so any speaker of gRPC, begins: a preface, and settings that set nothing."""
_SETTINGS = 4
"""The type of the frame that must be the answer."""

_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
"""Files that a process of a cluster with RAY_USE_TLS has."""

_REFUSED = 77


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
    deadline = time.monotonic() + _PATIENCE_S
    found = _found(address)
    host, _, port = found.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise OutputError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, or auto.")
    if not _speaks_grpc(address, host.strip("[]"), int(port)):
        raise OutputError(
            f"What answers at {address!r} is no Ray cluster, or not with RAY_USE_TLS as it is set here. Give the"
            " HOST:PORT that `ray start --head` named (6379 as a rule, not the dashboard's), or leave --address out to"
            " run on this machine."
        )
    _require_admission(address, found, deadline - time.monotonic())
    return found


def _found(address: str) -> str:
    if address != "auto":
        return address
    try:
        found: str = services.get_ray_address_from_environment("auto", None)
    except ConnectionError as error:
        raise _nobody(address, "no Ray runs on this machine") from error
    return found


def _speaks_grpc(address: str, host: str, port: int) -> bool:
    tls = _tls()
    try:
        with ExitStack() as opened:
            connection = opened.enter_context(socket.create_connection((host, port), timeout=_SILENCE_S))
            if tls is not None:
                connection = opened.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.settimeout(_SILENCE_S)
            connection.sendall(_HELLO)
            answer = b""
            while len(answer) < 4 and (more := connection.recv(64)):
                answer += more
    except TimeoutError as error:
        raise _nobody(address, "no answer") from error
    except OSError as error:
        raise _nobody(address, (error.strerror or str(error)).lower()) from error
    return len(answer) >= 4 and answer[3] == _SETTINGS


def _tls() -> ssl.SSLContext | None:
    """How Ray's own connections are secured, by the files that the environment names; None where they are plain."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    certificate, key, authority = files = [os.environ.get(name, "") for name in _CERTIFICATES]
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        absent = [name for name, file in zip(_CERTIFICATES, files, strict=True) if not os.path.isfile(file)]
        raise OutputError(
            f"RAY_USE_TLS is set, and {', '.join(absent or _CERTIFICATES)} name no certificate and key that can be used"
            f" ({error}): give the files of the cluster's nodes, or unset RAY_USE_TLS."
        ) from error
    context.set_alpn_protocols(["h2"])
    return context


def _require_admission(address: str, found: str, timeout_s: float) -> None:
    """Have a process of its own ask the cluster who it is: it can be given up, and what it prints is not seen."""
    command = [sys.executable, "-P", "-c", ASK_FOR_ADMISSION, found]
    try:
        code = subprocess.run(command, check=False, capture_output=True, timeout=timeout_s).returncode
    except subprocess.TimeoutExpired:
        code = None
    if code == _REFUSED:
        raise OutputError(
            f"The Ray cluster at {address!r} asks for a token that this process does not have: set"
            " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as they were where it was started."
        )
    if code != 0:
        raise _nobody(address, "no cluster makes itself known")


def _nobody(address: str, reason: str) -> OutputError:
    return OutputError(
        f"There is no Ray cluster at {address!r} ({reason}): start one with `ray start --head`, correct --address or"
        " RAY_ADDRESS, or leave both out to run on this machine."
    )
