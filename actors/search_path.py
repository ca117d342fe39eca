"""Module search path of workers: the driver's, in its order."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ray.job_config import JobConfig

_HOME = Path(__file__).parents[2]
"""The folder that contains raydr."""


class LikeTheDriver(JobConfig):  # type: ignore[misc]
    """Makes workers search modules where the driver does, and only then in the current folder.

    Ray puts the folder of the driver's script and the current folder first. A ``numpy.py`` there would then replace
    numpy in workers, but not in the driver. Modules next to one's own script are still found: the driver searches
    there too.
    """

    _py_driver_sys_path: list[str]

    def _serialize(self) -> Any:
        # Ray has added its two folders by now. Workers put each entry before all others, so the last entry comes
        # first.
        order = [*drivers(), *self._py_driver_sys_path]
        self._py_driver_sys_path = list(reversed(dict.fromkeys(order)))
        return super()._serialize()


def drivers() -> list[str]:
    """Return the module search path of this process, with the folder of raydr last.

    A development install is found by a hook, which Python asks after all folders.
    """
    folders = [os.path.abspath(entry) for entry in sys.path if os.path.exists(entry or os.curdir)]
    return [*folders, str(_HOME)]
