"""Settings of the embedders, as scenarios give them."""

from __future__ import annotations

from pydantic import Field

from raydr.embedding import TSNE, UMAP
from raydr.settings import Settings


class TSNESettings(Settings):
    """t-SNE as openTSNE computes it."""

    perplexity: float | None = Field(
        None, ge=1, description="default: 30, or (rows - 1) / 3 where that is less"
    )
    early_exaggeration: float = Field(12.0, ge=1, description="factor on attraction in the first iterations")
    exaggeration: float = Field(1.0, ge=1, description="factor on attraction afterwards")
    learning_rate: float | None = Field(None, gt=0, description="default: rows / exaggeration")
    early_iterations: int = Field(250, ge=0, description="iterations with early exaggeration")
    iterations: int = Field(500, ge=0, description="iterations after those")

    def embedder(self) -> TSNE:
        """Return the embedder with these settings."""
        return TSNE(**{name: getattr(self, name) for name in TSNESettings.model_fields})


class UMAPSettings(Settings):
    """UMAP as umap-learn computes it."""

    neighbors: int | None = Field(
        None, ge=2, description="n_neighbors, the row included; default: 15, or rows - 1"
    )
    min_dist: float = Field(0.1, ge=0, description="least distance in the map that neighbours are drawn to")
    spread: float = Field(1.0, gt=0, description="scale of the map")
    epochs: int | None = Field(None, ge=1, description="default: 500 up to 10,000 rows, else 200")
    negative_samples: int = Field(5, ge=1, description="repulsions for each attraction")

    def embedder(self) -> UMAP:
        """Return the embedder with these settings."""
        return UMAP(**{name: getattr(self, name) for name in UMAPSettings.model_fields})
