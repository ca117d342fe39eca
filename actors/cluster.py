"""Start Ray on this machine or join a cluster, without noise, and leave everything as it was found."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from raydr.actors.address import cluster_asked_for, require_answer
from raydr.actors.authentication import closed_to_others, environment_of_ray, forget, require_closed
from raydr.actors.leftovers import INSIDE, MARK, end_processes, groups_of_ray, logs_in, new_folder
from raydr.actors.ray_health import require_worker
from raydr.actors.ray_patches import store_within, well_behaved, without_dashboard
from raydr.actors.ray_private import require_tested_ray
from raydr.actors.search_path import LikeTheDriver
from raydr.errors import OutputError, RunError
from raydr.memory import address_space_bytes
from raydr.signals import signals_deferred
from raydr.threads import share_cores

NAMESPACE = "raydr"

_PATIENCE_S = 5.0
"""Seconds that a signal waits for Ray to start, which takes 4, or to end, which takes 2 on two cores."""

_SETTINGS = {
    # No usage report, no warning about accelerators of actors that ask for none.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # What Ray has to tell its control service at the end, which may be gone: 5 s of waiting without this.
    "RAY_task_events_shutdown_flush_timeout_ms": "500",
    # A question to a control service that is gone fails before Ray, after 60 s, ends the process that asks.
    "RAY_gcs_server_request_timeout_seconds": "40",
}

_REMEDY = (
    "Raise what limits processes here (`ulimit -a` shows it; `ulimit -v unlimited` takes off that of memory), free"
    " memory or disk, or run without Ray: --set runtime.federation=inline."
)
_REMEDY_JOINED = (
    "Look into the logs of its nodes (as a rule in /tmp/ray/session_latest/logs), and for what limits processes there;"
    " or leave --address and RAY_ADDRESS out to run on this machine."
)

logger = logging.getLogger(__name__)


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Ray, for the length of a ``with`` block.

    Parameters
    ----------
    address : str, optional
        A running cluster (``auto``, ``host:port``), or the environment's ``RAY_ADDRESS``. Without one, a Ray that
        this process has already joined is used and left running; otherwise one is started here, closed to others, and
        stopped at the end.

    Raises
    ------
    OutputError
        If there is no cluster at ``address``, or no place for the folder of a Ray that is started here.
    RunError
        If Ray does not start on this machine, or none of its workers does.
    """
    if ray.is_initialized():
        yield
        return
    require_tested_ray()
    share_cores()
    asked = cluster_asked_for(address)
    with well_behaved(), _started() if asked is None else _joined(asked):
        yield


@contextmanager
def _started() -> Iterator[None]:
    mark, keep = secrets.token_hex(8), False
    folder: Path | None = None
    try:
        with signals_deferred():
            folder = new_folder()
        with environment_of_ray({MARK: mark, **_settings(), **closed_to_others()}):
            try:
                with without_dashboard(), store_within(address_space_bytes()):
                    _init("local", include_dashboard=False, _temp_dir=str(folder / INSIDE))
            except Exception as error:
                keep = True
                raise RunError(
                    f"Ray did not start on this machine ({' '.join(str(error).split()).rstrip('.')}). Look for lack of"
                    f" memory or disk, and into {logs_in(folder)}; or run without Ray: --set"
                    " runtime.federation=inline."
                ) from error
            require_closed()
        try:
            require_worker("on this machine", _REMEDY)
        except RunError:
            keep = True
            raise
        yield
    finally:
        with signals_deferred(_PATIENCE_S):
            groups = groups_of_ray(mark)
            try:
                ray.shutdown()  # also after an interruption half-way through the start
            finally:
                forget()
                end_processes(mark, groups)
                if folder is not None and not keep:
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _joined(address: str) -> Iterator[None]:
    found = require_answer(address)
    try:
        # Nodes were started by somebody else, so what local workers inherit is handed to these.
        inherited = {"env_vars": {"OMP_WAIT_POLICY": os.environ["OMP_WAIT_POLICY"]}}
        try:
            with environment_of_ray(_settings()):
                _init(found, runtime_env=inherited)
        except (ConnectionError, ValueError) as error:
            raise OutputError(
                f"The Ray cluster at {address!r} cannot be joined ({error}): correct --address or RAY_ADDRESS, or"
                " leave both out to run on this machine."
            ) from error
        require_worker(f"on the cluster at {address!r}", _REMEDY_JOINED)
        logger.info("joined the Ray cluster at %s", found)
        yield
    finally:
        with signals_deferred(_PATIENCE_S):
            ray.shutdown()
            forget()


def _settings() -> dict[str, str]:
    """Settings that Ray reads once, when it starts; the user's own stand."""
    return {name: value for name, value in _SETTINGS.items() if name not in os.environ}


def _init(address: str, **options: Any) -> None:
    with signals_deferred(_PATIENCE_S):
        ray.init(
            address=address,
            namespace=NAMESPACE,
            job_config=LikeTheDriver(),
            logging_level=logging.ERROR,
            log_to_driver=False,
            **options,
        )
