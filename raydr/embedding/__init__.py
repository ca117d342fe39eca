"""From a neighbour graph and a first layout to a map: one thin adapter per embedder.

An adapter is a frozen dataclass of settings that knows how many neighbours it needs and how to embed.
None of them sees a data matrix or forms a rows x rows array, and equal inputs give equal bits: on repeated
runs, in any process, with any number of threads (``docs/determinism.md`` says how and at what price).
"""

from raydr.embedding.cne import CNE
from raydr.embedding.cosne import COSNE
from raydr.embedding.embedder import Embedder
from raydr.embedding.initialization import principal_components
from raydr.embedding.phate import PHATE
from raydr.embedding.tsne import TSNE
from raydr.embedding.umap import UMAP

__all__ = ["CNE", "COSNE", "PHATE", "TSNE", "UMAP", "Embedder", "principal_components"]
