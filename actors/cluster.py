"""Start Ray on this machine or join a cluster, quietly, and restore everything afterwards."""

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

from raydr.actors.address import chosen_cluster, require_answer
from raydr.actors.authentication import closed_to_others, environment_of_ray, forget, require_closed
from raydr.actors.ray_health import require_worker
from raydr.actors.ray_patches import few_processes, store_within, well_behaved
from raydr.actors.ray_private import require_tested_ray
from raydr.actors.ray_processes import INSIDE, MARK, end_processes, groups_of_ray, logs_in, new_folder
from raydr.actors.search_path import LikeTheDriver
from raydr.errors import OutputError, RunError
from raydr.memory import address_space_bytes
from raydr.portable import VARIABLES, is_portable
from raydr.signals import signals_deferred
from raydr.threads import share_cores

NAMESPACE = "raydr"

_PATIENCE_S = 5.0
"""Seconds that a signal waits for Ray to start (takes 3 s) or to end (takes 0.3 s on two cores)."""

_SETTINGS = {
    # No usage report, no warning about accelerators of actors that ask for none.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # At the end Ray reports to its control service, which may be gone. Without this it waits for 5 s.
    "RAY_task_events_shutdown_flush_timeout_ms": "500",
    # A request to a lost control service must fail before Ray ends the requesting process after 60 s.
    "RAY_gcs_server_request_timeout_seconds": "40",
}

_REMEDY = (
    "Raise the process limits on this machine (`ulimit -a` shows them; `ulimit -v unlimited` removes the memory"
    " limit), free memory or disk space, or run without Ray: --set runtime.federation=inline."
)
_REMEDY_JOINED = (
    "Check the logs of its nodes (usually in /tmp/ray/session_latest/logs) and the process limits there. Or leave"
    " --address and RAY_ADDRESS out to run on this machine."
)

logger = logging.getLogger(__name__)


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to Ray for the length of a ``with`` block.

    Parameters
    ----------
    address : str, optional
        A running cluster (``auto``, ``host:port``), or the environment's ``RAY_ADDRESS``. Without one, a Ray that this
        process has already joined is used and left running. Otherwise Ray is started here, protected from other users,
        and stopped at the end.

    Raises
    ------
    OutputError
        If there is no cluster at ``address``, or no folder for a Ray that is started here.
    RunError
        If Ray or its first worker does not start.
    """
    if ray.is_initialized():
        yield
        return
    require_tested_ray()
    share_cores()
    cluster = chosen_cluster(address)
    with well_behaved(), _started() if cluster is None else _joined(cluster):
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
                with few_processes(), store_within(address_space_bytes()):
                    _init("local", include_dashboard=False, _temp_dir=str(folder / INSIDE))
            except Exception as error:
                keep = True
                raise RunError(
                    f"Ray did not start on this machine ({' '.join(str(error).split()).rstrip('.')}). Check free"
                    f" memory and disk space, and the logs in {logs_in(folder)}. Or run without Ray: --set"
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
                ray.shutdown()  # also after an interruption during the start
            finally:
                forget()
                end_processes(mark, groups)
                if folder is not None and not keep:
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _joined(address: str) -> Iterator[None]:
    found = require_answer(address)
    try:
        # The nodes were started elsewhere, so their workers get the settings that local workers inherit.
        names = ("OMP_WAIT_POLICY", *(VARIABLES if is_portable() else ()))
        inherited = {"env_vars": {name: os.environ[name] for name in names}}
        try:
            with environment_of_ray(_settings()):
                _init(found, runtime_env=inherited)
        except (ConnectionError, ValueError) as error:
            raise OutputError(
                f"Cannot join the Ray cluster at {address!r} ({error}). Correct --address or RAY_ADDRESS, or leave"
                " both out to run on this machine."
            ) from error
        require_worker(f"on the cluster at {address!r}", _REMEDY_JOINED)
        logger.info("joined the Ray cluster at %s", found)
        yield
    finally:
        with signals_deferred(_PATIENCE_S):
            ray.shutdown()
            forget()


def _settings() -> dict[str, str]:
    """Return settings that Ray reads once at its start; values set by the user are kept."""
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
