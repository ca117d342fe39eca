"""Settings of the embedders, as scenarios give them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raydr.embedding import CNE, COSNE, PHATE, TSNE, UMAP
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


class CNESettings(Settings):
    """Contrastive neighbour embedding (Neg-t-SNE), between t-SNE and UMAP."""

    s: float = Field(
        0.5, ge=-10, le=10, description="0: like t-SNE, 1: like UMAP; between and beyond: log scale"
    )
    neighbors: int | None = Field(
        None, ge=1, description="neighbours, the row not included; default: 15, or rows - 1"
    )
    negative_samples: int = Field(5, ge=1, description="repulsions for each attraction")
    epochs: int = Field(200, ge=1, description="passes over the edges of the neighbour graph")
    learning_rate: float = Field(1.0, gt=0, description="at the start; falls linearly to 0")
    batch: int | None = Field(None, ge=1, description="edges of a batch; default: 1024, or rows / 64")
    early_exaggeration: bool = Field(True, description="spend the first third of the epochs at s = 1 or more")

    def embedder(self) -> CNE:
        """Return the embedder with these settings."""
        return CNE(**{name: getattr(self, name) for name in CNESettings.model_fields})


class PHATESettings(Settings):
    """PHATE as the phate package computes it; needs the extra raydr[phate]."""

    knn: int | None = Field(
        None, ge=1, description="neighbour that sets the bandwidth; default: 5, or rows - 1"
    )
    decay: float = Field(40.0, gt=0, description="exponent of the kernel's tails")
    t: int | None = Field(None, ge=1, description="diffusion steps; default: the knee of the entropy")
    gamma: float = Field(1.0, ge=-1, le=1, description="1: log potential, 0: square root, -1: none")
    landmarks: int = Field(2000, ge=4, description="past this number of rows, as many clusters are laid out")
    solver: Literal["sgd", "smacof"] = Field(
        "sgd", description="of the scaling; smacof is slower and more exact"
    )

    def embedder(self) -> PHATE:
        """Return the embedder with these settings."""
        return PHATE(**{name: getattr(self, name) for name in PHATESettings.model_fields})


class COSNESettings(Settings):
    """CO-SNE: t-SNE in the Poincaré disk or ball."""

    perplexity: float | None = Field(
        None, ge=1, description="default: 30, or (rows - 1) / 3 where that is less"
    )
    gamma: float = Field(0.1, gt=0, description="scale of the map's Cauchy kernel, a hyperbolic distance")
    divergence_weight: float = Field(1.0, gt=0, description="lambda_1, of the neighbours")
    depth_weight: float | None = Field(
        None, ge=0, description="lambda_2, of the norms; default: 10 * lambda_1 / rows"
    )
    early_exaggeration: float = Field(12.0, ge=1, description="factor on attraction in the first iterations")
    learning_rate: float | None = Field(None, gt=0, description="default: t-SNE's, in units of gamma")
    early_iterations: int = Field(250, ge=0, description="iterations with early exaggeration")
    iterations: int = Field(500, ge=0, description="iterations after those")
    negative_samples: int | None = Field(
        None, ge=1, description="repulsions of a row, drawn; default: all rows up to 5,000, 256 past that"
    )

    def embedder(self) -> COSNE:
        """Return the embedder with these settings."""
        return COSNE(**{name: getattr(self, name) for name in COSNESettings.model_fields})
