"""Federated methods, one file each, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raydr.arrays import FloatArray
from raydr.federation import Federation
from raydr.geometry import Geometry
from raydr.journal import Journal
from raydr.methods import fed_tsne_umap, fedne, fedne_baselines, sense
from raydr.methods.central import central_map
from raydr.methods.fed_tsne_umap import FedTSNE, FedUMAP
from raydr.methods.fedne_settings import FedAvgNE, FedNE, FedProxNE, GlobalNE, LocalNE
from raydr.methods.outcome import Outcome
from raydr.methods.sense_settings import SENSE
from raydr.settings import Settings


def _euclidean(settings: Any, rows: FloatArray) -> Geometry | None:
    return None


def _same_embedder(settings: Any, rows: FloatArray, seed: int, journal: Journal) -> FloatArray:
    return central_map(rows, settings.embedder(), seed=seed, journal=journal)


def _own_rounds(settings: Any) -> int:
    return int(settings.rounds)


@dataclass(frozen=True)
class Method:
    """A federated method: its settings and its server part, which meets the client part through messages.

    Attributes
    ----------
    settings : type of Settings
        What a scenario may say of it.
    serve : callable
        Its server part.
    truth : callable
        True distances between the pooled, scaled rows, by settings and rows; by default None, the rows' own
        Euclidean ones.
    mapped : callable
        Distances on a map, by settings and map; by default None, those of its positions.
    central : callable
        The pooled-data map, by settings, rows, seed and journal; by default by the settings' own embedder.
    public_rows : callable
        How many rows of the data to set apart for the server, by settings, rows, rows to be mapped, features and
        clients (:meth:`raydr.methods.anchors.AnchorSettings.public_rows`); None for methods that never do.
    rounds : callable
        Number of rounds in which clients are asked, by settings; by default the settings' own.
    noise_on : set of str
        Where clients can add noise: "data", "distances".
    transform : callable
        Positions of new rows on the map, by settings, the run's model and rows scaled as the run's; None for methods
        whose map takes no new rows.
    """

    settings: type[Settings]
    serve: Callable[[Federation, Any], Outcome]
    truth: Callable[[Any, FloatArray], Geometry | None] = _euclidean
    mapped: Callable[[Any, FloatArray], Geometry | None] = _euclidean
    central: Callable[[Any, FloatArray, int, Journal], FloatArray] = _same_embedder
    public_rows: Callable[[Any, int, int | None, int, int | None], int] | None = None
    rounds: Callable[[Any], int] = _own_rounds
    noise_on: frozenset[str] = frozenset()
    transform: Callable[[Any, Mapping[str, FloatArray], FloatArray], FloatArray] | None = None

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return (self.settings.__doc__ or "").strip().splitlines()[0]


METHODS: Mapping[str, Method] = {
    "fed-tsne": Method(FedTSNE, fed_tsne_umap.serve),
    "fed-umap": Method(FedUMAP, fed_tsne_umap.serve),
    "sense": Method(
        SENSE,
        sense.serve,
        truth=sense.truth,
        mapped=sense.mapped,
        central=sense.central,
        public_rows=SENSE.public_rows,
        rounds=lambda settings: settings.learning.rounds if settings.anchor_source == "learnt" else 0,
        noise_on=frozenset({"data", "distances"}),
        transform=sense.transform,
    ),
    "fedne": Method(FedNE, fedne.serve, central=fedne_baselines.central, transform=fedne.transform),
    "fedavg-ne": Method(FedAvgNE, fedne.serve, central=fedne_baselines.central, transform=fedne.transform),
    "fedprox-ne": Method(FedProxNE, fedne.serve, central=fedne_baselines.central, transform=fedne.transform),
    "local-ne": Method(LocalNE, fedne_baselines.serve_local, central=fedne_baselines.central),
    "global-ne": Method(
        GlobalNE,
        fedne_baselines.serve_global,
        central=fedne_baselines.central,
        rounds=lambda settings: 0,
        transform=fedne.transform,
    ),
}

__all__ = ["METHODS", "Method", "Outcome"]
