"""Compiled inner loops of embedders: modules that import numba, and so are imported where they are used."""
