"""Settings of SENSE."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raydr.embedding import COSNE, TSNE
from raydr.methods.embedders import AnyEmbedder
from raydr.methods.method import MethodSettings
from raydr.methods.preset import Preset
from raydr.methods.sense.algorithm_2 import MOST_POINTS
from raydr.methods.sense.anchors import AnchorSettings
from raydr.methods.sense.observations import Regime
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace, Space

PUBLISHED: Mapping[str, Any] = MappingProxyType(
    {
        "anchors": None,
        "anchor_source": "sample",
        "anchor_rank": None,
        "alignment": "none",
        "solver": "smacof",
        "start": "random",
        "tolerance": 0.0,
        "iterations": 2000,
    }
)
"""P3's values of these keys. The number of iterations is not in the paper and comes from its authors' code. Their
tolerance is absolute (algorithm 2) and so depends on the scale of the data; with 0, only rounding stops earlier.
Scaling is a key of ``data``: the authors' code scales features to 0 to 1 (``scale: minmax``)."""


class SenseSettings(Preset, AnchorSettings, MethodSettings):
    """Keys of :class:`raydr.methods.sense.server.SENSE`."""

    published: ClassVar[Mapping[str, Any]] = PUBLISHED

    kind: Literal["sense"] = "sense"
    preset: Literal["published"] | None = Field(
        None,
        description="published: all keys that are not given take P3's values (docs/sense.md)",
    )
    regime: Regime = Field(
        "multisite",
        description="multisite: clients also send distances between their own records; pointwise:"
        " each client holds one record",
    )
    geometry: Literal["euclidean", "hyperbolic"] = Field("euclidean", description="space of the records")
    curvature: float = Field(1.0, gt=0, description="kappa, for a hyperbolic space of curvature -kappa")
    points: Literal["features", "ball"] = Field(
        "features",
        description="how rows become points of the hyperbolic space: features under the exponential"
        " map, or points of the Poincare ball",
    )
    solver: Literal["closed-form", "smacof", "smacof-dense"] = Field(
        "closed-form",
        description="closed-form: exact if the distances allow it; smacof: the paper's iteration"
        " (11), one client after the other; smacof-dense: algorithm 2 to the letter, for"
        f" at most {MOST_POINTS:,} anchors and rows",
    )
    alignment: Literal["likeness", "none"] = Field(
        "likeness",
        description="how residuals of clients are rotated against each other if anchors leave"
        " dimensions open: by similar records and recurring values, or not at all",
    )
    start: Literal["random", "closed-form"] = Field("random", description="where the iteration starts")
    tolerance: float = Field(
        1e-6,
        ge=0,
        description="the iteration of a client stops when its stress falls by less than this share;"
        " with smacof-dense, when the stress of all clients falls by less than this, in"
        " squared units of the data",
    )
    iterations: int = Field(300, ge=0, description="largest number of iterations")
    dimensions: Literal[2, 3] = Field(2, description="dimensions of the map")
    embedder: AnyEmbedder = Field(
        TSNE(), description="method that draws the map: a kind alone, or with its settings"
    )

    @model_validator(mode="after")
    def _geometry_fits(self) -> SenseSettings:
        if self.geometry == "euclidean" and isinstance(self.embedder, COSNE):
            raise ValueError("embedder cosne draws hyperbolic records: set geometry: hyperbolic")
        # By value, because the scenario.yaml of a run folder gives every key.
        if self.geometry == "euclidean" and (self.curvature, self.points) != (1.0, "features"):
            raise ValueError(
                "curvature and points apply to geometry: hyperbolic alone: set geometry:"
                " hyperbolic, or leave them out"
            )
        if self.geometry == "hyperbolic" and self.solver == "smacof-dense":
            raise ValueError(
                "solver smacof-dense, algorithm 2 of P3, needs geometry: euclidean: choose solver: smacof"
            )
        return self

    def check(self, rows: int, features: int) -> None:
        """Check that there are enough rows for anchors and neighbours."""
        self.per_client(features, rows)
        self.embedder.neighbors_needed(rows)

    @property
    def space(self) -> Space:
        """Space of the records."""
        if self.geometry == "hyperbolic":
            return HyperbolicSpace(self.curvature, self.points)
        return EuclideanSpace()
