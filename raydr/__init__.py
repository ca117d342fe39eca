"""Federated dimensionality reduction: one map of all sites' data, and its privacy cost.

``raydr.run("digits-fed-tsne")`` runs a scenario (:mod:`raydr.front.api`). ``raydr.FedTSNE`` and the other estimators do
the same for rows in memory, with the interface of scikit-learn (:mod:`raydr.front.estimators`). Importing raydr is
fast: Ray, numba, torch, scikit-learn and matplotlib load when they are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydr.front.api import (
        map,  # noqa: A004  users call it raydr.map
        reproduce,
        resume,
        resume_sweep,
        run,
        session,
        sweep,
    )
    from raydr.front.estimators import (
        DSNE,
        SENSE,
        FedAvgNE,
        FedNE,
        FedPCA,
        FedProxNE,
        FedSpectralClustering,
        FedTSNE,
        FedUMAP,
        GlobalNE,
        LandmarkNE,
        LocalNE,
        PrivateMap,
    )
    from raydr.front.finished_runs import audit, join, leave, redraw, stability, transform
    from raydr.front.result import Result, SweepResult, load

    __version__: str

__all__ = [
    "DSNE",
    "SENSE",
    "FedAvgNE",
    "FedNE",
    "FedPCA",
    "FedProxNE",
    "FedSpectralClustering",
    "FedTSNE",
    "FedUMAP",
    "GlobalNE",
    "LandmarkNE",
    "LocalNE",
    "PrivateMap",
    "Result",
    "SweepResult",
    "audit",
    "join",
    "leave",
    "load",
    "map",
    "redraw",
    "reproduce",
    "resume",
    "resume_sweep",
    "run",
    "session",
    "stability",
    "sweep",
    "transform",
]
_RESULTS = {"Result", "SweepResult", "load"}
_OF_FINISHED_RUNS = {"audit", "join", "leave", "redraw", "stability", "transform"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # importlib.metadata takes longer to import than all else here, and would delay the command.
        from importlib import metadata

        return metadata.version("raydr")
    if name in _RESULTS:
        return getattr(import_module("raydr.front.result"), name)
    if name in _OF_FINISHED_RUNS:
        return getattr(import_module("raydr.front.finished_runs"), name)
    if name in __all__ and name[0].islower():
        return getattr(import_module("raydr.front.api"), name)
    if name[0].isupper():  # the estimator of a method, also of a method of another package
        return getattr(import_module("raydr.front.estimators"), name)
    raise AttributeError(f"module 'raydr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
