"""Metrics of how faithful a map is: neighbourhoods, clusters, groups, ranks, and the recovered geometry.

All are streamed. Each kind of question has one file. :func:`metric` registers a metric, and
:func:`metric_by_k` one for any number of neighbours.
"""

from __future__ import annotations

from raydr.metrics.evidence import Evidence, SharedGraph, row_graph
from raydr.metrics.metric import (
    DEFAULT_METRICS,
    METRICS,
    Metric,
    Need,
    Scores,
    default_metrics,
    evaluate,
    graph_size,
    metric,
    metric_by_k,
    metric_named,
)

# isort: off
# The order of this list is the order of the metrics.
from raydr.metrics import neighborhood as neighborhood
from raydr.metrics import clusters as clusters
from raydr.metrics import ranks as ranks
from raydr.metrics import structure as structure
from raydr.metrics import recovery as recovery
from raydr.metrics import coordinates as coordinates
from raydr.metrics import sites as sites
from raydr.metrics import new_rows as new_rows
from raydr.metrics import reliability as reliability
from raydr.metrics import fractures as fractures
# isort: on

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Evidence",
    "Metric",
    "Need",
    "Scores",
    "SharedGraph",
    "default_metrics",
    "evaluate",
    "graph_size",
    "metric",
    "metric_by_k",
    "metric_named",
    "row_graph",
]
