"""From a neighbour graph and a first layout to a map: one file for each embedder.

An embedder is its frozen settings: they know how many neighbours they need and how to embed. None of them sees a data
matrix or forms a rows x rows array, and equal inputs give equal bits: on repeated runs, in any process, with any number
of threads (``docs/determinism.md`` says how and at what price).
"""

# isort: off
# In the order in which they are listed: the default first.
from raydr.embedding.embedder import EMBEDDERS, Embedder, embedder
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
    "embedder",
    "principal_components",
]
