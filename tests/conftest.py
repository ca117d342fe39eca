"""Fixtures that several tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One Ray on this machine for all tests that need one."""
    from actors.cluster import connected

    # Workers must find the messages that tests define.
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        with connected():
            yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data sets; tests that need it are skipped without it."""
    folder = os.environ.get("RAYDR_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RAYDR_DATA names no folder of real data sets")
    return Path(folder)
