"""Runtimes of other projects that carry a run to sites which do not trust each other's machines."""
