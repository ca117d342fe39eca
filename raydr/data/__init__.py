"""Tables from built-in data sets and files, read and checked before a run starts."""

from __future__ import annotations

from raydr.data.alike import blocks_alike, load_alike
from raydr.data.catalogue import DATASETS, IN_MEMORY
from raydr.data.datasets import Dataset
from raydr.data.graph import load_graph
from raydr.data.holdout import hold_out
from raydr.data.in_memory import in_frame, in_memory
from raydr.data.loading import load
from raydr.data.provenance import Harmonized, Provenance, Source
from raydr.data.public import set_apart
from raydr.data.site import Census, Site, SiteFile, census
from raydr.data.survey.columns import Alike
from raydr.data.survey.layout import Layout
from raydr.data.table import Table

__all__ = [
    "DATASETS",
    "IN_MEMORY",
    "Alike",
    "Census",
    "Dataset",
    "Harmonized",
    "Layout",
    "Provenance",
    "Site",
    "SiteFile",
    "Source",
    "Table",
    "blocks_alike",
    "census",
    "hold_out",
    "in_frame",
    "in_memory",
    "load",
    "load_alike",
    "load_graph",
    "set_apart",
]
