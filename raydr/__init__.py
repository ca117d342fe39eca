"""Federated dimensionality reduction: one map of everybody's data, and what that map cost in privacy.

``raydr.run("digits-fed-tsne")`` is the whole of it; :mod:`raydr.front.api` says more. ``raydr.FedTSNE`` and the others
are the same for rows in memory, as scikit-learn has it: :mod:`raydr.front.estimators`. Importing raydr is light: Ray,
numba, torch, scikit-learn and matplotlib are loaded by what needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydr.front.api import (
        audit,
        join,
        map,  # noqa: A004  as every function here it is called by its module's name
        reproduce,
        resume,
        resume_sweep,
        run,
        sweep,
        transform,
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
    "load",
    "map",
    "reproduce",
    "resume",
    "resume_sweep",
    "run",
    "sweep",
    "transform",
]
_FINISHED = {"Result", "SweepResult", "load"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Its import takes longer than all else here, and the command is not seen to before this module is there.
        from importlib import metadata

        return metadata.version("raydr")
    if name in _FINISHED:
        return getattr(import_module("raydr.front.result"), name)
    if name in __all__ and name[0].islower():
        return getattr(import_module("raydr.front.api"), name)
    if name[0].isupper():  # the estimator of a method, which may be another package's
        return getattr(import_module("raydr.front.estimators"), name)
    raise AttributeError(f"module 'raydr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
