"""The private parts of Ray that raydr uses. Any release may change them, so no other module imports them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ray
from ray._private import node, ray_constants, services, state, utils, worker

from raydr.errors import RunError

__all__ = [
    "ASK_FOR_ADMISSION",
    "connect_job_client",
    "node",
    "ray_constants",
    "raylet",
    "require_tested_ray",
    "services",
    "state",
    "utils",
    "worker",
]

raylet: Any = import_module("ray._raylet")
"""Ray's C++ library, which has no type hints."""

ASK_FOR_ADMISSION = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1])
except AuthenticationError:
    sys.exit(77)
"""
"""A program that exits with 77 if the cluster at its address argument refuses it."""

_OLDEST, _NEXT = (2, 55), (2, 56)


def connect_job_client(client: Any, url: str, verify: str | bool) -> None:
    """Initialise a ``JobSubmissionClient`` for the dashboard at ``url``, which runs this release of Ray.

    This replaces its ``__init__``, in which RAY_ADDRESS takes precedence over the argument.

    Raises
    ------
    RunError
        If raydr was not tested with this release.
    """
    require_tested_ray()
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient

    SubmissionClient.__init__(client, address=url, verify=verify)
    client._client_ray_version = client._server_ray_version = ray.__version__


def require_tested_ray() -> None:
    """Raise RunError if raydr was not tested with this release of Ray."""
    release = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if not _OLDEST <= release < _NEXT:
        oldest, newest = (".".join(map(str, each)) for each in (_OLDEST, _NEXT))
        raise RunError(
            f"raydr does not support Ray {ray.__version__}: it was tested with {oldest} up to, but not including,"
            f" {newest}. Install a tested release with `pip install 'ray[tune]>={oldest},<{newest}'`, or run"
            " without Ray: --set runtime.federation=inline."
        )
