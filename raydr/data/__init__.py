"""Tables: the built-in data sets and the user's own files, read and checked before anything else starts."""

from __future__ import annotations

from raydr.data.catalogue import DATASETS, Dataset
from raydr.data.graph import load_graph
from raydr.data.loading import load
from raydr.data.public import set_apart
from raydr.data.site import Census, Site, SiteFile, census
from raydr.data.table import Table

__all__ = [
    "DATASETS",
    "Census",
    "Dataset",
    "Site",
    "SiteFile",
    "Table",
    "census",
    "load",
    "load_graph",
    "set_apart",
]
