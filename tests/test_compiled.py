"""Compiled loops are kept for later processes, wherever there is a place for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOPS = """
from raydr.compiled import compiled

def _times(x):
    return {factor} * x

times = compiled()(_times)
"""
USE = "import loops; print(loops.times(3), sum(loops.times.stats.cache_hits.values()))"
NO_PLACE = """
from numba.core import caching

def refuse(locator):
    raise PermissionError(13, "Permission denied")

for found in vars(caching).values():
    if isinstance(found, type) and hasattr(found, "ensure_cache_path"):
        found.ensure_cache_path = refuse
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "loops.py").write_text(LOOPS.format(factor=2))
    return tmp_path


def started(place: Path, program: str = USE) -> subprocess.Popen[str]:
    setting = {"PYTHONPATH": str(place), "NUMBA_CACHE_DIR": str(place / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **setting},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), err


def test_two_processes_compile_at_once_and_a_third_only_loads(place: Path) -> None:
    both = [started(place), started(place)]
    assert {printed(process)[0].split()[0] for process in both} == {"6"}
    assert printed(started(place)) == ("6 1", "")


def test_loops_of_an_earlier_version_are_compiled_again(place: Path) -> None:
    assert printed(started(place))[0] == "6 0"
    (place / "loops.py").write_text(LOOPS.format(factor=50))
    assert printed(started(place))[0] == "150 0"


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_damaged_loops_are_compiled_again_and_kept(place: Path, kind: str) -> None:
    """Numba keeps an index (``.nbi``) and results (``.nbc``)."""
    assert printed(started(place))[0] == "6 0"
    damaged = list((place / "cache").rglob(f"*.{kind}"))
    assert damaged
    for file in damaged:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert printed(started(place)) == ("6 0", "")
    assert printed(started(place)) == ("6 1", "")


def test_without_a_writable_folder_each_process_compiles_and_says_so_once(place: Path) -> None:
    program = f"{NO_PLACE}import loops, raydr.federation.kernels\nprint(loops.times(3))"
    out, err = printed(started(place, program))
    assert out == "6"
    assert err.count("RuntimeWarning: raydr cannot keep its compiled loops") == 1
    assert "Set NUMBA_CACHE_DIR to a folder that only you can write to." in err
    assert not (place / "cache").exists()
