"""Partitions of rows among clients: each row belongs to exactly one client. Each way to partition has its own file."""

from __future__ import annotations

# isort: off
# In the order of the documentation: the default first.
from raydr.partition.dealing import PARTITIONS, Dealing, partition
from raydr.partition.iid import IID
from raydr.partition.dirichlet import Dirichlet
from raydr.partition.balanced import Balanced
from raydr.partition.shards import Shards
from raydr.partition.one_class import OneClass
from raydr.partition.by_column import ByColumn
from raydr.partition.pointwise import Pointwise
from raydr.partition.ownership import Partition
# isort: on

__all__ = [
    "IID",
    "PARTITIONS",
    "Balanced",
    "ByColumn",
    "Dealing",
    "Dirichlet",
    "OneClass",
    "Partition",
    "Pointwise",
    "Shards",
    "partition",
]
