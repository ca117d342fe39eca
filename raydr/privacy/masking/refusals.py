"""Why a secure sum is refused."""

from __future__ import annotations

from raydr.errors import RunError


class MaskingError(RunError):
    """A message of secure aggregation that contradicts the protocol, or was changed on its way."""


class TooFewError(MaskingError):
    """Too few clients are left for a sum that keeps its promise."""
