"""Where workers look for modules: where the driver looks, in its order."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ray.job_config import JobConfig

_HOME = Path(__file__).parents[2]
"""The folder that holds raydr, of which this is ``raydr.actors.search_path``."""


class LikeTheDriver(JobConfig):  # type: ignore[misc]
    """Has workers look where the driver looks, and only after that in the current folder.

    Ray puts the folder of the driver's script and the current folder before everything else, so that a ``numpy.py``
    which happens to lie there is taken for numpy by workers, though not by the driver. What one defines beside one's
    own script is found as ever: the driver looks there too.
    """

    _py_driver_sys_path: list[str]

    def _serialize(self) -> Any:
        # Ray has added its two by now. Workers put each of these before all others, so the last comes to stand first.
        order = [*drivers(), *self._py_driver_sys_path]
        self._py_driver_sys_path = list(reversed(dict.fromkeys(order)))
        return super()._serialize()


def drivers() -> list[str]:
    """Return where this process looks for modules, and at last where it found raydr.

    A package that is installed for development is found by a hook, which Python asks after all folders.
    """
    folders = [os.path.abspath(entry) for entry in sys.path if os.path.exists(entry or os.curdir)]
    return [*folders, str(_HOME)]
