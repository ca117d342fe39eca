"""Settings of dSNE."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydr.embedding import TSNE
from raydr.errors import DataError
from raydr.methods.method import MethodSettings
from raydr.settings import LocalPath

FEWEST = 4
"""Least number of reference rows: fewer have no neighbours at any perplexity."""
_MOST_BY_DEFAULT = 500


class DsneSettings(TSNE, MethodSettings):
    """Keys of :class:`raydr.methods.dsne.server.DSNE`."""

    kind: Literal["dsne"] = "dsne"  # type: ignore[assignment]
    shots: Literal["multi", "single"] = Field(
        "multi",
        description="multi: in each iteration all sites move the reference rows together; single: the"
        " server maps the reference rows alone, and each site maps its own rows around"
        " them",
    )
    reference_rows: int | None = Field(
        None,
        ge=FEWEST,
        description="number of public reference rows, set apart from the data and not mapped;"
        " default: a tenth of the data, at most 500",
    )
    reference_path: LocalPath | None = Field(
        None, description="a file of public rows to use instead, with the columns of the data"
    )
    dimensions: Literal[2, 3] = Field(2, description="dimensions of the map")

    @model_validator(mode="after")
    def _one_reference(self) -> DsneSettings:
        if self.reference_rows is not None and self.reference_path is not None:
            raise ValueError(
                "give either reference_rows (set apart from the data) or reference_path (a file), not both"
            )
        return self

    @property
    def total(self) -> int:
        """Number of iterations."""
        return self.early_iterations + self.iterations

    def pace(self, number: int) -> float:
        """Return the factor on attraction in an iteration, from 1 on."""
        return self.early_exaggeration if number <= self.early_iterations else self.exaggeration

    def perplexity_of(self, points: int) -> float:
        """Return the perplexity among this many points; it is lower at a small site, which has fewer neighbours."""
        return min(self.perplexity or 30.0, (points - 1) / 3.0)

    def check(self, rows: int, features: int) -> None:
        """Check that the pooled rows of the reference map have enough neighbours."""
        self.neighbors_needed(rows)

    def public_rows(self, rows: int, mapped: int | None, features: int, clients: int | None) -> int:
        """Return the number of rows to set apart (:meth:`raydr.methods.sense.anchors.AnchorSettings.public_rows`).

        Raises
        ------
        DataError
            If the data have too few rows.
        """
        if self.reference_path is not None:
            return 0
        left = rows - (mapped if mapped is not None else max(2, clients or 2))
        wanted = self.reference_rows or max(FEWEST, min(_MOST_BY_DEFAULT, rows // 10, left))
        if wanted > left:
            raise DataError(
                f"method.kind dsne sets {wanted} reference rows apart, but only {max(left, 0)} of"
                f" {rows} rows are left over from the map. Lower method.reference_rows or data.rows, or"
                " set method.reference_path to a file of public rows."
            )
        return wanted

    def needs_table(self) -> str | None:
        """Return why sites cannot keep their own files; None if they can."""
        if self.reference_path is not None:
            return None
        return (
            "method.kind dsne sets reference rows of one table apart, which is not possible with sites"
            " that keep their own files: set method.reference_path to a file of public rows"
        )
