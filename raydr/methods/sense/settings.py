"""Settings of SENSE."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from raydr.embedding import COSNE, TSNE
from raydr.methods.embedders import AnyEmbedder
from raydr.methods.method import MethodSettings
from raydr.methods.sense.algorithm_2 import MOST_POINTS
from raydr.methods.sense.anchors import AnchorSettings
from raydr.methods.sense.observations import Regime
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace, Space


class SenseSettings(AnchorSettings, MethodSettings):
    """Keys of :class:`raydr.methods.sense.server.SENSE`."""

    kind: Literal["sense"] = "sense"
    regime: Regime = Field(
        "multisite",
        description="multisite: clients tell distances between their own records too; pointwise: one record each",
    )
    geometry: Literal["euclidean", "hyperbolic"] = Field("euclidean", description="where the records live")
    curvature: float = Field(1.0, gt=0, description="kappa of a hyperbolic space of curvature -kappa")
    points: Literal["features", "ball"] = Field(
        "features",
        description="rows of a hyperbolic space: features under the exponential map, or points of the Poincare ball",
    )
    solver: Literal["closed-form", "smacof", "smacof-dense"] = Field(
        "closed-form",
        description="exact where distances allow it, or the paper's iteration (11), client by client; smacof-dense is"
        f" algorithm 2 to the letter, for {MOST_POINTS:,} anchors and rows at most",
    )
    alignment: Literal["likeness", "none"] = Field(
        "likeness",
        description="what turns clients' residuals against each other where anchors leave dimensions open: likeness of"
        " records and values that recur, or nothing",
    )
    start: Literal["random", "closed-form"] = Field("random", description="where the iteration starts")
    tolerance: float = Field(
        1e-6,
        ge=0,
        description="relative fall of a client's stress at which its iteration stops; of smacof-dense the fall itself,"
        " of all clients' together, in squared units of the data",
    )
    iterations: int = Field(300, ge=0, description="iterations at most")
    dimensions: Literal[2, 3] = Field(2, description="of the map")
    embedder: AnyEmbedder = Field(TSNE(), description="draws the map: a kind alone, or with its settings")

    @model_validator(mode="after")
    def _geometry_fits(self) -> SenseSettings:
        if self.geometry == "euclidean" and isinstance(self.embedder, COSNE):
            raise ValueError("embedder cosne draws hyperbolic records: set geometry: hyperbolic")
        # By value, not by what was given: the scenario.yaml of a run folder gives every key.
        if self.geometry == "euclidean" and (self.curvature, self.points) != (1.0, "features"):
            raise ValueError("curvature and points are of geometry: hyperbolic: set it, or leave them out")
        if self.geometry == "hyperbolic" and self.solver == "smacof-dense":
            raise ValueError(
                "solver smacof-dense is of geometry: euclidean, as P3's algorithm 2: choose solver: smacof"
            )
        return self

    def check(self, rows: int, features: int) -> None:
        """Anchors and neighbours must be there for so many rows."""
        self.per_client(features, rows)
        self.embedder.neighbors_needed(rows)

    @property
    def space(self) -> Space:
        """Where records live."""
        if self.geometry == "hyperbolic":
            return HyperbolicSpace(self.curvature, self.points)
        return EuclideanSpace()
