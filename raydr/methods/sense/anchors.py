"""Anchors of SENSE: their number, source and visibility (P3, A.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.federation import Federation
from raydr.methods.landmarks.learning import LearntLandmarks, learn_landmarks
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.methods.sense.observations import Visibility
from raydr.settings import LocalPath, Settings
from raydr.statistics.moments import spread

AnchorSource: TypeAlias = Literal["sample", "spanning", "random", "learnt", "file"]
SET_APART = ("sample", "spanning")
"""Sources that set rows of the data apart."""
CANDIDATES = 4
"""Rows set apart for each anchor that is chosen among them."""


class AnchorSettings(Settings):
    """Number, source and visibility of anchors."""

    visibility: Visibility = Field(
        "full",
        description="full: all clients see the same anchors; partial: each client also sees some that"
        " no other client sees",
    )
    anchors: int | None = Field(
        None,
        ge=2,
        description="number of anchors that each client sees; default: features - 1, at most half the"
        " rows of the data",
    )
    local_anchors: int | None = Field(
        None,
        ge=1,
        description="how many of them no other client sees, with visibility: partial; default: half",
    )
    anchor_source: AnchorSource | None = Field(
        None,
        description="where anchors come from. sample: rows of the data that are set apart and not"
        f" mapped; spanning: those of {CANDIDATES} times as many rows set apart that span their largest spread;"
        " random: Gaussian, as wide as the data; learnt: landmarks of federated"
        " distribution learning; file: the file at anchor_path; default: sample if at"
        " least half of the rows, and one per client, are left to map, else random",
    )
    anchor_path: LocalPath | None = Field(None, description="a file of anchors, with the columns of the data")
    anchor_rank: int | None = Field(
        None, ge=1, description="project the anchors to this many affine dimensions; default: no projection"
    )
    learning: DistributionLearning = Field(
        DistributionLearning(), description="how anchors are learnt: they are the landmarks of this learning"
    )

    @model_validator(mode="after")
    def _source_fits(self) -> AnchorSettings:
        if (self.anchor_path is not None) != (self.anchor_source == "file"):
            raise ValueError("anchor_source: file and anchor_path need each other: give both or neither")
        if self.visibility == "full" and self.local_anchors is not None:
            raise ValueError(
                "local_anchors need visibility: partial, because each is seen by one client alone: set"
                " visibility: partial, or leave local_anchors out"
            )
        if self.visibility == "partial" and self.anchor_source == "spanning":
            raise ValueError(
                "anchor_source: spanning chooses anchors for all clients together: set visibility: full, or"
                " anchor_source: sample"
            )
        if self.learning.landmarks is not None:
            raise ValueError("the number of learnt landmarks is set by anchors: leave learning.landmarks out")
        return self

    def per_client(self, features: int, rows: int) -> tuple[int, int]:
        """Return the numbers of global and local anchors that a client sees.

        Parameters
        ----------
        features : int
            Features of the data; the default is one anchor less, the most that P3's theorem 3.1 allows.
        rows : int
            Rows of the data, anchors included; the default is at most half of them.

        Raises
        ------
        ScenarioError
            If no anchor would be left for all clients.
        """
        seen = self.anchors or max(2, min(features - 1, rows // 2))
        if self.visibility == "full":
            return seen, 0
        local = self.local_anchors or seen // 2
        if local >= seen:
            raise ScenarioError(
                f"method.local_anchors is {local} of method.anchors {seen}, so no anchor is left for"
                f" all clients to see. Choose at most {seen - 1}."
            )
        return seen - local, local

    def public_rows(self, rows: int, mapped: int | None, features: int, clients: int | None) -> int:
        """Return the number of rows to set apart as anchors; 0 if they come from elsewhere.

        Parameters
        ----------
        rows : int
            Rows of the data.
        mapped : int or None
            Number of rows to map; None for all that are left.
        features : int
            Features of the data.
        clients : int or None
            Number of clients; None for one client per mapped row.

        Raises
        ------
        DataError
            If the data have too few rows.
        """
        if self.anchor_source not in (None, *SET_APART):
            return 0
        common, local = self.per_client(features, rows)
        apart = common
        if self.anchor_source == "spanning":  # all anchors are common
            apart = max(common, min(CANDIDATES * common, rows // 2))
        if clients is None:
            clients = mapped if mapped is not None else (rows - apart) // (1 + local)
        wanted = apart + local * clients
        left = rows - (mapped if mapped is not None else max(2, clients))
        if self.anchor_source is None and wanted > min(left, max(2, rows // 2)):
            return 0
        if wanted > left:
            each = f" and {local} for each of {clients} clients" if local else ""
            whose = (
                f"{common} for all{each}"
                if self.anchor_source != "spanning"
                else f"to choose {common} anchors"
            )
            raise DataError(
                f"method.anchor_source: {self.anchor_source or 'sample'} sets {wanted} rows apart ({whose}), but"
                f" only {max(left, 0)} of {rows} rows are left over from the map. Lower method.anchors,"
                " method.local_anchors or data.rows, or choose method.anchor_source: random."
            )
        return wanted

    def source(self, public: FloatArray | None) -> AnchorSource:
        """Return the source of anchors, which depends on whether rows were set apart."""
        return self.anchor_source or ("random" if public is None else "sample")

    def needs_table(self) -> str | None:
        """Return why sites cannot keep their own files; None if they can."""
        if self.anchor_source not in SET_APART:
            return None
        return (
            f"method.anchor_source: {self.anchor_source} sets rows of one table apart, which is not possible with"
            " sites that keep their own files: choose random, learnt or file"
        )


@dataclass(frozen=True)
class Anchors:
    """Public rows of features.

    Attributes
    ----------
    common : (global anchors, features) float64
        Seen by every client.
    local : (clients, local anchors, features) float64
        Each seen by one client.
    """

    common: Float64Array
    local: Float64Array

    @property
    def seen_by_each(self) -> int:
        """Number of anchors that a client sees."""
        return len(self.common) + int(self.local.shape[1])

    def seen_by(self, client: int) -> Float64Array:
        """Return the anchors that a client sees, (anchors, features), global ones first."""
        return np.concatenate([self.common, self.local[client]]) if self.local.size else self.common

    @property
    def all(self) -> Float64Array:
        """All anchors, (anchors, features)."""
        if not self.local.size:
            return self.common
        return np.concatenate([self.common, self.local.reshape(-1, self.common.shape[1])])


Learning = Callable[[Federation, DistributionLearning], LearntLandmarks]


def chosen_anchors(
    federation: Federation, settings: AnchorSettings, learn: Learning = learn_landmarks
) -> Anchors:
    """Return the anchors in the scale of the clients' rows; ``learn`` provides learnt ones.

    Raises
    ------
    DataError
        If there are too few, they have other features than the data, or ``anchor_rank`` is more than they span.
    """
    features, clients = federation.features, federation.clients
    public = federation.public
    source = settings.source(public)
    if source in (*SET_APART, "file") and public is None:
        raise DataError(
            f"method.anchor_source: {source} needs rows that are set apart, and there are none. If"
            " sites hold their own files, choose random, learnt or file."
        )
    known = federation.rows + (len(public) if public is not None else 0)
    common, local = settings.per_client(features, known)
    if source == "file" and settings.anchors is None and public is not None:
        common, local = (len(public), 0) if settings.visibility == "full" else (common, local)
    if source in SET_APART and settings.anchors is None and not local and public is not None:
        common = min(
            common, len(public)
        )  # rows set apart for the ranges of all rows, and not of the clients' rows
    wanted = common + local * clients
    match source:
        case "sample" | "file":
            rows = _public(public, features, wanted)
        case "spanning":
            rows = spanning(_public(public, features, len(public) if public is not None else wanted), wanted)
        case "random":
            moments = spread(federation)
            noise = federation.stream("anchors").standard_normal((wanted, features))
            rows = moments.mean + moments.deviation * noise
        case "learnt":
            rows = learn(federation, settings.learning.model_copy(update={"landmarks": wanted})).points
    if settings.anchor_rank is not None:
        rows = flattened(rows, settings.anchor_rank)
    return Anchors(rows[:common], rows[common:].reshape(clients if local else 0, local, features))


def spanning(rows: Float64Array, count: int) -> Float64Array:
    """Choose ``count`` of some rows (rows, features) that span the directions of their largest spread.

    The first is the row nearest to their mean. The others come from a QR decomposition with column pivoting of the
    rows along their first ``count`` - 1 principal axes. Pivoting on all axes chooses outliers.

    >>> spanning(np.array([[0.0, 0.1], [9.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), 2).tolist()
    [[1.0, 0.0], [9.0, 0.0]]
    """
    from scipy.linalg import qr

    if len(rows) <= count:
        return rows
    centred = rows - rows.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[2][: count - 1]
    order = qr((centred @ basis.T).T, mode="economic", pivoting=True)[2]
    chosen = order[: count - 1]
    others = np.setdiff1d(np.arange(len(rows)), chosen)
    nearest = others[np.einsum("ij,ij->i", centred[others], centred[others]).argmin()]
    return np.asarray(rows[[nearest, *chosen]])


def flattened(rows: Float64Array, rank: int) -> Float64Array:
    """Project anchors onto the ``rank`` affine dimensions of their largest spread (P3, Table 4).

    Raises
    ------
    ScenarioError
        If they span fewer dimensions.
    """
    centre = rows.mean(axis=0)
    left, singular, basis = np.linalg.svd(rows - centre, full_matrices=False)
    spanned = int((singular > singular[0] * 1e-9).sum())
    if rank > spanned:
        raise ScenarioError(
            f"method.anchor_rank is {rank}, but the {len(rows)} anchors span {spanned} affine"
            f" dimensions. Choose at most {spanned}, or more anchors."
        )
    return np.asarray(centre + (left[:, :rank] * singular[:rank]) @ basis[:rank])


def _public(public: FloatArray | None, features: int, wanted: int) -> Float64Array:
    rows = np.zeros((0, features)) if public is None else np.asarray(public, dtype=np.float64)
    if rows.shape[1] != features:
        raise DataError(
            f"The anchors have {rows.shape[1]} features and the data {features}. The file of"
            " method.anchor_path must hold the columns of data.features, in the same order, and no"
            " others."
        )
    if len(rows) < wanted:
        raise DataError(
            f"The run needs {wanted} anchors, but there are only {len(rows)}. Lower method.anchors or"
            " method.local_anchors."
        )
    return rows[:wanted]
