"""Partitions: which client holds which row, each row exactly one client's."""

from __future__ import annotations

from raydr.partition.assignment import Kind, assign
from raydr.partition.kinds import by_column, dirichlet, iid, one_class, pointwise, shards
from raydr.partition.ownership import Partition

__all__ = [
    "Kind",
    "Partition",
    "assign",
    "by_column",
    "dirichlet",
    "iid",
    "one_class",
    "pointwise",
    "shards",
]
