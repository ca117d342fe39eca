"""Settings of landmarks: learnt (P1, Algorithm 1), or a frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raydr.errors import ScenarioError
from raydr.methods.preset import Preset
from raydr.privacy import Mechanism
from raydr.robust import Aggregation, Mean
from raydr.settings import Settings, require_in_order

DEFAULT_ROUNDS = 50
"""After 50 rounds the objective on MNIST is a twentieth of the first."""

Share = Literal["gradient", "landmarks", "embedding"]
Origin = Literal["learnt", "principal", "random", "k-means"]

ON = {"gradient": "gradient", "landmarks": "variable", "embedding": "embedding"}
"""Target of noise for each kind of upload: P1 5.2 adds it to the gradient or to the optimisation variable."""

_MOST_IN_A_FRAME = 500

PUBLISHED: Mapping[str, Any] = MappingProxyType(
    {
        "landmarks_from": "learnt",
        "rounds": 500,
        "local_steps": 1,
        "share": "gradient",
        "weights": "clients",
        "momentum": 0.0,
        "aggregation": Mean(),
        "estimator": "nystrom",
        "affinity": "rbf",
        "ridge": 0.0,
        "rank": None,
    }
)
"""P1's values of these keys. P1 does not say gamma, the step and the first landmarks, so these stay raydr's. It does
not say Q either: one local step is its description in 3.3. n_Y = 500 is for 40,000 rows, so ``landmarks`` stays too."""

COVERING_PACE = 4.0
"""Factor of the default step where landmarks must cover the rows: then it is n_y / (2 gamma), twice the inverse of the
largest curvature of the cross term alone.

What a Nystrom estimate of distances or eigenvectors misses is lost. *Measured* after 50 rounds with 500 landmarks: the
share of the pooled rows' eigenvectors within the estimate's, with the usual step and with this one.
MNIST has 0.981 and 0.995, COIL-20 0.908 and 0.965, Mice-Protein 0.865 and 0.932. Rows in place of learnt landmarks have
0.995 to 0.999, but no client may reveal rows. On five other data sets, IID or one class per client, the objective fell
in every round. With a factor of 8 it still did, with 16 it rose.
"""

LEAST_GROUP = 5
"""Least number of rows per k-means landmark."""
_K_MEANS_ROUNDS = 20


class DistributionLearning(Settings):
    """Settings of Algorithm 1."""

    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks n_y; default: twice the features, from 50 to 500, at most"
        " half the rows",
    )
    rounds: int | None = Field(
        None,
        ge=0,
        description="rounds S of learning; with share: embedding, steps of the server; default: 50",
    )
    local_steps: int = Field(1, ge=1, description="gradient steps Q of each client per round")
    share: Share = Field(
        "gradient",
        description="what clients upload: gradients (16) or their landmarks (15) in each round, or"
        " one mean of random features of their rows, from which the server learns alone",
    )
    weights: Literal["clients", "rows"] = Field(
        "clients", description="omega_p: equal for all clients, or by number of rows"
    )
    gamma: float | None = Field(
        None, gt=0, description="kernel bandwidth; default: 1 / median squared distance"
    )
    step: float | None = Field(None, gt=0, description="step eta; default: n_y / (8 gamma)")
    server_step: float | None = Field(
        None, gt=0, description="step eta' of the server with averaged gradients (16); default: step"
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Nesterov momentum of the server's steps; 20 rounds with 0.9 match 50 rounds without",
    )
    initial_spread: float = Field(
        0.4,
        gt=0,
        description="standard deviation of the first landmarks around the mean, relative to that of the data",
    )
    aggregation: Aggregation = Field(
        Mean(), description="how the server combines the clients' uploads; robust rules see each upload"
    )
    random_features: int = Field(
        4096, ge=64, multiple_of=2, description="numbers D that a client uploads if share is embedding"
    )
    frequencies_in: Literal["full", "principal", "random"] = Field(
        "principal",
        description="where the frequencies of the random features lie: full (all directions), or"
        " along frequency_axes principal axes of all rows, or random directions;"
        " landmarks move in these directions alone",
    )
    frequency_axes: int | None = Field(
        None, ge=1, description="number of axes or directions; default: 50, at most all"
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, after scaling. Landmarks then start, or"
        " stand, where the bounds say, and clients are not asked for moments",
    )

    def landmark_count(self, rows: int, features: int) -> int:
        """Return the number of landmarks for this many rows and features.

        Raises
        ------
        ScenarioError
            If there are fewer rows than requested landmarks.
        """
        count = self.landmarks or default_landmarks(rows, features)
        if count > rows:
            raise ScenarioError(
                f"method.landmarks is {count}, but the clients hold only {rows} rows. Choose at most"
                f" {rows} landmarks, or leave it out."
            )
        return count

    @property
    def origin(self) -> Origin:
        """Source of the landmarks."""
        return "learnt"

    @property
    def pace(self) -> float:
        """Factor of the default step."""
        return 1.0

    @property
    def steps(self) -> int:
        """S, the steps of the server."""
        return DEFAULT_ROUNDS if self.rounds is None else self.rounds

    @property
    def rounds_asked(self) -> int:
        """Number of rounds with requests to clients."""
        return 0 if self.share == "embedding" else self.steps

    def releases(self, noise: Mechanism) -> int:
        """Return the number of answers that noise covers: one per round or one embedding, plus moments of axes."""
        if self.origin != "learnt":
            moments = self.origin == "principal"
            if noise.on == "data":
                return int(noise.for_good or moments)
            return int(noise.on == "moments" and moments)
        if noise.on == "data":
            return 1
        if ON[self.share] != noise.on:
            return 0
        return 1 + (self.frequencies_in == "principal") if self.share == "embedding" else self.steps

    def why_no_key(self) -> str | None:
        """Return why rows may not be rotated: bounds limit the original features."""
        if self.bounds is None:
            return None
        return "method.bounds limit the original features, which the key rotates: leave them out"

    @model_validator(mode="after")
    def _bounds_in_order(self) -> DistributionLearning:
        require_in_order(self.bounds)
        return self

    @model_validator(mode="after")
    def _weigh_alike(self) -> DistributionLearning:
        if self.weights == "rows" and not isinstance(self.aggregation, Mean):
            raise ValueError(
                f"weights is 'rows', but aggregation {self.aggregation.kind!r} counts every client the"
                " same, because a malicious client could claim any number of rows: choose weights:"
                " clients or aggregation: mean"
            )
        return self

    @model_validator(mode="after")
    def _share_fits(self) -> DistributionLearning:
        idle = _changed(self, ("random_features", "frequencies_in", "frequency_axes"))
        if self.share != "embedding" and idle:
            raise ValueError(
                f"random features need share: embedding, but share is {self.share}: set share:"
                f" embedding, or leave {' and '.join(idle)} out"
            )
        if self.share == "embedding" and self.local_steps > 1:
            raise ValueError(
                f"local_steps is {self.local_steps}, but with share: embedding only the server takes"
                " steps: leave local_steps out, or choose share: gradient or landmarks"
            )
        if self.frequencies_in == "full" and self.frequency_axes is not None:
            raise ValueError(
                "frequency_axes applies to frequencies_in: principal or random, but frequencies_in is"
                " full, which uses all axes: leave frequency_axes out, or choose another"
                " frequencies_in"
            )
        if self.server_step is not None and self.share != "gradient":
            raise ValueError(
                f"server_step applies to averaged gradients, but share is {self.share}: leave"
                " server_step out and set step, or choose share: gradient"
            )
        if None not in (self.step, self.server_step) and self.local_steps == 1:
            raise ValueError(
                "with server_step given, step sets the clients' local steps, but local_steps is 1, so"
                " they take none: leave step out, or raise local_steps"
            )
        return self

    def axes_of_frequencies(self, features: int) -> int:
        """Return the number of dimensions of the frequencies."""
        return features if self.frequencies_in == "full" else min(self.frequency_axes or 50, features)


class LandmarkSettings(Preset, DistributionLearning):
    """Settings of landmarks that are learnt or form a frame."""

    published: ClassVar[Mapping[str, Any]] = PUBLISHED

    preset: Literal["published"] | None = Field(
        None,
        description="published: all keys that are not given take P1's values (docs/landmarks.md)",
    )
    landmarks_from: Origin | None = Field(
        None,
        description="where landmarks come from. learnt: Algorithm 1; principal: along the principal"
        " axes of all rows; random: along random directions; k-means: means of groups of"
        " rows, by sums in rounds (20 by default); default: learnt if rounds are given or"
        " share is embedding, else principal",
    )
    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks n_y. A frame uses one more than its directions, and features"
        " + 1 at most; default: at most 500; learnt: twice the features, from 50 to 500,"
        " at most half the rows; k-means: at most a tenth of the rows",
    )
    frame_keys: ClassVar[frozenset[str]] = frozenset({"landmarks", "bounds"})
    """Keys of learning that also apply to a frame."""
    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "moments", *ON.values()})
    """Uploads of learning, or of a frame."""

    @property
    def origin(self) -> Origin:
        """Source of the landmarks."""
        if self.landmarks_from is not None:
            return self.landmarks_from
        return "principal" if self.rounds is None and self.share != "embedding" else "learnt"

    @property
    def steps(self) -> int:
        """S, the steps of the server."""
        if self.origin == "k-means" and self.rounds is None:
            return _K_MEANS_ROUNDS
        return super().steps

    @property
    def rounds_asked(self) -> int:
        """Number of rounds with requests to clients."""
        return super().rounds_asked if self.origin in ("learnt", "k-means") else 0

    def landmark_count(self, rows: int, features: int) -> int:
        """As :meth:`DistributionLearning.landmark_count`; k-means allows fewer."""
        if self.origin != "k-means":
            return super().landmark_count(rows, features)
        most = rows // LEAST_GROUP
        if most < max(2, self.landmarks or 0):
            raise ScenarioError(
                f"method.landmarks_from: k-means needs at least {LEAST_GROUP} rows per landmark, so"
                f" {rows} rows allow {most}, not {self.landmarks or 2}. Choose fewer method.landmarks,"
                " or landmarks_from: principal."
            )
        return self.landmarks or min(max(2, rows // (2 * LEAST_GROUP)), max(50, 2 * features), 500)

    def frame_count(self, rows: int, features: int) -> int:
        """Return the number of landmarks in a frame: those requested, up to what the distances can use.

        ``features`` directions span everything, and centred rows have one principal axis less than rows.
        """
        most = min(features + 1, max(rows, 2)) if self.origin == "principal" else features + 1
        return min(self.landmarks or _MOST_IN_A_FRAME, most)

    @model_validator(mode="after")
    def _of_one_origin(self) -> LandmarkSettings:
        origin = self.origin
        if origin == "learnt":
            return self
        of_origin = self.frame_keys | ({"rounds"} if origin == "k-means" else set())
        idle = _changed(self, [name for name in DistributionLearning.model_fields if name not in of_origin])
        if idle:
            verb, they = ("are", "them") if len(idle) > 1 else ("is", "it")
            kind = "by k-means" if origin == "k-means" else f"from {origin} directions"
            raise ValueError(
                f"{' and '.join(idle)} {verb} for learnt landmarks, but landmarks {kind} are not"
                f" learnt: leave {they} out, or set landmarks_from: learnt"
            )
        if origin == "k-means" and self.rounds == 0:
            raise ValueError(
                "rounds is 0, but k-means needs rounds to move the landmarks: set rounds: 1 or more"
            )
        return self


def require_among_rows(estimator: str, origin: Origin) -> None:
    """Raise ValueError if a Nystrom estimate would use the landmarks of a frame."""
    if origin not in ("learnt", "k-means") and estimator != "trilateration":
        raise ValueError(
            f"estimator {estimator!r} needs landmarks that lie among the rows, because it uses"
            " distances between landmarks as a sample of distances between rows. Landmarks from"
            f" {origin} directions lie around the rows: choose estimator: trilateration, or set"
            " landmarks_from: learnt or k-means"
        )


def _changed(settings: Settings, names: Iterable[str]) -> list[str]:
    """Return keys whose values differ from the default; the scenario.yaml of a run folder gives every key."""
    fields = type(settings).model_fields
    return [name for name in names if getattr(settings, name) != fields[name].default]


def default_landmarks(rows: int, features: int) -> int:
    """Return twice the features, from 50 to 500, but at most half the rows (at least two)."""
    return max(2, min(max(50, 2 * features), 500, rows // 2))
