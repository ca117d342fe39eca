"""Where workers look for modules: where the driver looks, in its order."""

from __future__ import annotations

import os
import sys
from typing import Any

from ray.job_config import JobConfig


class LikeTheDriver(JobConfig):  # type: ignore[misc]
    """Has workers look where the driver looks, and only after that in the current folder.

    Ray puts the folder of the driver's script and the current folder before everything else, so that a ``numpy.py``
    which happens to lie there is taken for numpy by workers, though not by the driver. What one defines beside one's
    own script is found as ever: the driver looks there too.
    """

    _py_driver_sys_path: list[str]

    def _serialize(self) -> Any:
        # Ray has added its two by now. Workers put each of these before all others, so the last comes to stand first.
        here = [*map(os.path.abspath, sys.path), *self._py_driver_sys_path]
        self._py_driver_sys_path = list(reversed(dict.fromkeys(here)))
        return super()._serialize()
