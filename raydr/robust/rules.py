"""Aggregation rules that a scenario chooses, and the number of clients that each needs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.robust.estimators import coordinate_median, multi_krum, norm_bounded_mean, trimmed_mean
from raydr.settings import Settings, share_of


class Mean(Settings):
    """The plain mean, by exact sums: the server sees only the sum, and one liar can move it anywhere."""

    kind: Literal["mean"] = "mean"


class RobustRule(Settings, ABC):
    """A rule that limits the influence of lying clients."""

    kind: str

    @property
    def least_clients(self) -> int:
        """Fewest clients with which the rule tolerates the attackers in its settings, and at least one."""
        return 3

    @abstractmethod
    def combine(self, contributions: Float64Array) -> Float64Array:
        """Return the aggregate of contributions (clients, ...) of at least ``least_clients`` clients."""

    def require(self, clients: int) -> None:
        """Raise ScenarioError if there are fewer clients than the rule needs."""
        if clients < self.least_clients:
            described = ", ".join(
                f"{name} {value}" for name, value in self if name != "kind" and value is not None
            )
            raise ScenarioError(
                f"method.aggregation {self.kind}{f' with {described}' if described else ''} needs at least"
                f" {self.least_clients} clients, but at most {clients} clients with rows take part in a round. Use"
                " more clients, or a rule that tolerates fewer attackers."
            )


class CoordinateMedian(RobustRule):
    """The median over clients of each coordinate; tolerates attackers that are fewer than half of the clients."""

    kind: Literal["coordinate-median"] = "coordinate-median"

    def combine(self, contributions: Float64Array) -> Float64Array:
        """See :func:`coordinate_median`."""
        return coordinate_median(contributions)


class TrimmedMean(RobustRule):
    """The mean over clients of each coordinate without its extremes; tolerates as many attackers as one end drops."""

    kind: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float = Field(
        0.2, gt=0, description="clients to drop at each end: a fraction below 0.5, or a whole number"
    )

    @field_validator("trim")
    @classmethod
    def _part_or_number(cls, trim: float) -> float:
        if trim >= 0.5 and not trim.is_integer():
            raise ValueError(
                "expected a fraction of the clients (below 0.5) or a whole number of clients (1, 2 ...), got"
                f" {trim:g}"
            )
        return trim

    @property
    def least_clients(self) -> int:
        """Fewest clients with which each end drops one and one remains."""
        if self.trim < 0.5:
            return min(math.ceil(1 / share_of(self.trim, 1)), 2**53)
        return 2 * int(self.trim) + 1

    def combine(self, contributions: Float64Array) -> Float64Array:
        """See :func:`trimmed_mean`; a part of the clients is rounded down, as scipy does."""
        clients = contributions.shape[0]
        trim = share_of(self.trim, clients) if self.trim < 0.5 else self.trim
        return trimmed_mean(contributions, int(trim))


class _Neighborly(RobustRule):
    """Rules that select contributions by their distances to each other."""

    attackers: int = Field(ge=1, description="number of clients that may lie")

    @property
    def least_clients(self) -> int:
        """Blanchard et al. 2017: n >= 2 f + 3."""
        return 2 * self.attackers + 3


class Krum(_Neighborly):
    """The contribution that lies closest to its neighbours; for clients that resemble each other."""

    kind: Literal["krum"] = "krum"

    def combine(self, contributions: Float64Array) -> Float64Array:
        """See :func:`multi_krum`, with one contribution kept."""
        return multi_krum(contributions, self.attackers, keep=1)


class MultiKrum(_Neighborly):
    """The mean of the contributions that lie closest to their neighbours."""

    kind: Literal["multi-krum"] = "multi-krum"
    keep: int | None = Field(
        None, ge=1, description="number of contributions to average; default and maximum: all but attackers"
    )

    @property
    def least_clients(self) -> int:
        """Krum's number, and enough clients to keep."""
        return max(super().least_clients, (self.keep or 1) + self.attackers)

    def combine(self, contributions: Float64Array) -> Float64Array:
        """See :func:`multi_krum`."""
        keep = self.keep or contributions.shape[0] - self.attackers
        return multi_krum(contributions, self.attackers, keep)


class NormBound(RobustRule):
    """The mean of contributions scaled down to a norm; limits how far liars push, not in which direction."""

    kind: Literal["norm-bound"] = "norm-bound"
    limit: float | None = Field(None, gt=0, description="largest Euclidean norm of a contribution")
    multiple: float | None = Field(
        None,
        gt=0,
        description="largest norm, as a multiple of the clients' median norm, if limit is not set; default: 1",
    )

    @model_validator(mode="after")
    def _one_bound(self) -> NormBound:
        if self.limit is not None and self.multiple is not None:
            raise ValueError("set limit (a norm) or multiple (of the median norm), not both")
        return self

    def combine(self, contributions: Float64Array) -> Float64Array:
        """See :func:`norm_bounded_mean`."""
        return norm_bounded_mean(contributions, limit=self.limit, multiple=self.multiple or 1.0)


Aggregation: TypeAlias = Annotated[
    Mean | CoordinateMedian | TrimmedMean | Krum | MultiKrum | NormBound, Field(discriminator="kind")
]
"""How the server combines many contributions into one."""
