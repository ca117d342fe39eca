"""How many threads compute: one BLAS thread everywhere, parallelism above it.

BLAS libraries split sums by their number of threads, so their bits change with it. raydr computes with one BLAS
thread and splits work into fixed blocks instead, whose results do not depend on how many run at once.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread inside a ``with`` block."""
    return cast(AbstractContextManager[Any], _controller().limit(limits=1, user_api="blas"))


def share_cores() -> None:
    """Have OpenMP's threads sleep at barriers, here if it is not loaded yet, and in processes started from now on.

    GNU OpenMP spins there. With other work on the cores that costs t-SNE of 1,797 rows 26 s instead of 4; on an idle
    machine sleeping costs it 0.4 s. No bit changes.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _controller() -> Any:
    # Looking for the loaded libraries takes milliseconds, so once; numpy's and scipy's must be there by then.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
