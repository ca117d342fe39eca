"""How faithful a map is: neighbourhoods, clusters, groups, ranks, and the recovered geometry; all streamed."""

from __future__ import annotations

from raydr.metrics.evidence import Evidence, row_graph
from raydr.metrics.registry import DEFAULT_METRICS, METRICS, Metric, Scores, evaluate, metric_named

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Evidence",
    "Metric",
    "Scores",
    "evaluate",
    "metric_named",
    "row_graph",
]
