"""Address of a running cluster: found and checked before Ray connects and waits."""

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
"""Seconds for all checks together. Ray itself would wait for 35 s, print, and ignore Ctrl-C."""
_SILENCE_S = 3.0
"""Seconds in which a port must answer."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes of HTTP/2, and so of gRPC: the preface and empty settings."""
_SETTINGS = 4
"""Type of the expected answer frame."""

_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
"""Files of a process in a cluster with RAY_USE_TLS."""

_REFUSED = 77


def chosen_cluster(address: str | None) -> str | None:
    """Return the address of the cluster to join; None to start a Ray on this machine.

    As everywhere in Ray, ``RAY_ADDRESS`` replaces a missing address or ``auto``; ``local`` means none.
    """
    if address in (None, "", "auto"):
        address = os.environ.get("RAY_ADDRESS") or address
    return None if address in (None, "", "local") else address


def require_answer(address: str) -> str:
    """Return the HOST:PORT where a cluster answers, within seconds and quietly.

    Raises
    ------
    OutputError
        If there is no answer, another service answers, or the cluster refuses this process.
    """
    if "://" in address:
        raise OutputError(
            f"{address!r} is a Ray Client address, which cannot stream a run's events. Use the HOST:PORT of the"
            " cluster's head (usually port 6379), from a machine of the cluster."
        )
    deadline = time.monotonic() + _PATIENCE_S
    found = _found(address)
    host, _, port = found.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise OutputError(f"{address!r} is not the address of a Ray cluster: expected HOST:PORT or auto.")
    if not _speaks_grpc(address, host.strip("[]"), int(port)):
        raise OutputError(
            f"The service at {address!r} is not a Ray cluster, or its RAY_USE_TLS differs from the setting here."
            " Use the HOST:PORT that `ray start --head` prints (usually port 6379, not the dashboard's), or leave"
            " --address out to run on this machine."
        )
    _require_admission(address, found, deadline - time.monotonic())
    return found


def _found(address: str) -> str:
    if address != "auto":
        return address
    try:
        found: str = services.get_ray_address_from_environment("auto", None)
    except ConnectionError as error:
        raise _no_answer(address, "no Ray runs on this machine") from error
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
        raise _no_answer(address, "no answer") from error
    except OSError as error:
        raise _no_answer(address, (error.strerror or str(error)).lower()) from error
    return len(answer) >= 4 and answer[3] == _SETTINGS


def _tls() -> ssl.SSLContext | None:
    """Return the TLS settings of Ray's connections, from the files in the environment; None without TLS."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    certificate, key, authority = files = [os.environ.get(name, "") for name in _CERTIFICATES]
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        absent = [name for name, file in zip(_CERTIFICATES, files, strict=True) if not os.path.isfile(file)]
        raise OutputError(
            f"RAY_USE_TLS is set, but {', '.join(absent or _CERTIFICATES)} do not name a usable certificate and key"
            f" ({error}). Use the files of the cluster's nodes, or unset RAY_USE_TLS."
        ) from error
    context.set_alpn_protocols(["h2"])
    return context


def _require_admission(address: str, found: str, timeout_s: float) -> None:
    """Ask the cluster in a separate process, which can be stopped and whose output is hidden."""
    command = [sys.executable, "-P", "-c", ASK_FOR_ADMISSION, found]
    try:
        code = subprocess.run(command, check=False, capture_output=True, timeout=timeout_s).returncode
    except subprocess.TimeoutExpired:
        code = None
    if code == _REFUSED:
        raise OutputError(
            f"The Ray cluster at {address!r} requires a token, and this process has none. Set RAY_AUTH_MODE=token"
            " and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the values that the cluster was started with."
        )
    if code != 0:
        raise _no_answer(address, "no cluster identified itself")


def _no_answer(address: str, reason: str) -> OutputError:
    return OutputError(
        f"There is no Ray cluster at {address!r} ({reason}). Start one with `ray start --head`, correct --address"
        " or RAY_ADDRESS, or leave both out to run on this machine."
    )
