"""Sweeps that run in seconds, and one who runs trials without Tune: for tests of what surrounds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

from raydr.tune.folder import Packed, SweepWork
from raydr.tune.reading import read_sweep
from raydr.tune.running import run_trial
from raydr.tune.schema import Sweep
from raydr.tune.trials import Trial

SPACE = {"method.landmarks": [12, 24], "clients.count": [3, 200]}
"""Of whose points those with 200 clients fail: iris has 150 rows."""
TIMED = ("seconds", "peak_memory_bytes")
"""Measures that no two runs share."""


def tiny_sweep(**more: Any) -> Sweep:
    """Four points, two of which fail, with two repeats."""
    content = {"name": "swept", "base": tiny(), "space": SPACE, "repeats": 2, "trial": {"report": False}}
    return read_sweep(content | more)


class Interrupted(KeyboardInterrupt):
    """As if the driver had been told to end."""


def inline(monkeypatch: pytest.MonkeyPatch, *, dies_after: int | None = None) -> list[str]:
    """Have sweeps run their trials here, without Ray, one after the other; returns the names of those that ran.

    ``dies_after`` so many trials came whole, before anybody hears of the last one.
    """
    import raydr.actors.cluster as cluster
    import raydr.tune.execution as execution

    ran: list[str] = []

    def execute(
        trials: Any, work: SweepWork, size: Any, stopping: Any, *, retries: int, data_dir: Path | None
    ) -> None:
        while (trial := trials.next()) is not None:
            ran.append(trial.name)
            trials.started(trial)
            told = run_trial(
                execution.dump_json(trial.scenario),
                data_dir=data_dir,
                report=size.report,
                by_round=None,
                deliver=_to(work, trial),
            )
            if dies_after is not None and len(ran) == dies_after:
                raise Interrupted
            trials.ended(trial, told, 1.0)

    monkeypatch.setattr(cluster, "connected", lambda address=None: nullcontext())
    monkeypatch.setattr(execution, "execute", execute)
    monkeypatch.setattr(execution, "trials_at_once", lambda size: 1)
    return ran


def _to(work: SweepWork, trial: Trial) -> Callable[[Packed], None]:
    return lambda content: work.take(trial.name, content)


def table(folder: Path, name: str = "trials.parquet") -> list[Mapping[str, Any]]:
    """Rows of a table of a sweep, without what no two runs share."""
    import pyarrow.parquet as pq

    found = pq.read_table(folder / name).to_pylist()
    return [
        {key: value for key, value in row.items() if key.removesuffix(".sd") not in TIMED} for row in found
    ]


def left_behind(folder: Path) -> Path:
    """The incomplete folder of a sweep that was to come to ``folder``."""
    (found,) = folder.parent.glob(f"{folder.name}.incomplete-*")
    return found


def files_of(folder: Path, *names: str) -> list[bytes]:
    return [(folder / name).read_bytes() for name in names]
