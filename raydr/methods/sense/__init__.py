"""SENSE: geometry from the distances to anchors, in one exchange (P3)."""

from raydr.methods.sense import server as server
