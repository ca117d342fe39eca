"""Compiled inner loops of the metrics. They import numba, so import these modules where they are used."""
