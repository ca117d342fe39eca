"""Embedders, one file each: from a neighbour graph and an initial layout to a map.

An embedder is a frozen settings object. It knows how many neighbours it needs and how to embed. No embedder
reads a data matrix or forms a rows x rows array. Equal inputs give bit-identical results: on repeated runs,
in any process, with any number of threads (``docs/determinism.md`` explains how, and the cost).
"""

# isort: off
# In listing order: the default first.
from raydr.embedding.embedder import EMBEDDERS, Embedder, StartsFromPlaces, embedder
from raydr.embedding.tsne import TSNE
from raydr.embedding.umap import UMAP
from raydr.embedding.phate import PHATE
from raydr.embedding.cne import CNE
from raydr.embedding.cosne import COSNE
from raydr.embedding.initialization import principal_components
# isort: on

__all__ = [
    "CNE",
    "COSNE",
    "EMBEDDERS",
    "PHATE",
    "TSNE",
    "UMAP",
    "Embedder",
    "StartsFromPlaces",
    "embedder",
    "principal_components",
]
