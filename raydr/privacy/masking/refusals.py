"""Errors of secure aggregation."""

from __future__ import annotations

from raydr.errors import RunError


class MaskingError(RunError):
    """A message of secure aggregation that violates the protocol or was changed."""


class TooFewError(MaskingError):
    """Too few clients are left for a secure sum."""
