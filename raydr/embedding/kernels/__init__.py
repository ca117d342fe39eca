"""Compiled inner loops of the embedders. They import numba, so import these modules where they are used."""
