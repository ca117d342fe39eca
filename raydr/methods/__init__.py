"""Federated methods, one file each, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raydr.federation import Federation
from raydr.methods import fed_tsne_umap
from raydr.methods.fed_tsne_umap import FedTSNE, FedUMAP
from raydr.methods.outcome import Outcome
from raydr.settings import Settings


@dataclass(frozen=True)
class Method:
    """A federated method: its settings and its server part, which meets the client part through messages."""

    settings: type[Settings]
    serve: Callable[[Federation, Any], Outcome]

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return (self.settings.__doc__ or "").strip().splitlines()[0]


METHODS: Mapping[str, Method] = {
    "fed-tsne": Method(FedTSNE, fed_tsne_umap.serve),
    "fed-umap": Method(FedUMAP, fed_tsne_umap.serve),
}

__all__ = ["METHODS", "Method", "Outcome"]
