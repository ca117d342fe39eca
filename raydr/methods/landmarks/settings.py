"""Settings of landmarks: how they are learnt (P1, Algorithm 1), or where a frame stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from raydr.errors import ScenarioError
from raydr.privacy import Mechanism
from raydr.robust import Aggregation, Mean
from raydr.settings import Settings, require_in_order

DEFAULT_ROUNDS = 50
"""By then the objective of MNIST is a twentieth of the first."""

Share = Literal["gradient", "landmarks", "embedding"]
Origin = Literal["learnt", "principal", "random", "k-means"]

ON = {"gradient": "gradient", "landmarks": "variable", "embedding": "embedding"}
"""Where noise is put on what is shared: P1 5.2 has it on the gradient or on the optimisation variable."""

_MOST_IN_A_FRAME = 500

LEAST_GROUP = 5
"""Rows of which a landmark of k-means is the mean, at least."""
_K_MEANS_ROUNDS = 20


class DistributionLearning(Settings):
    """Settings of Algorithm 1."""

    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks n_y; default: twice the features, 50 to 500, at most half the rows",
    )
    rounds: int | None = Field(
        None, ge=0, description="rounds S of learning, if share is embedding steps of the server; default: 50"
    )
    local_steps: int = Field(1, ge=1, description="gradient steps Q of each client in a round")
    share: Share = Field(
        "gradient",
        description="what clients upload: gradients (16) or their landmarks (15) in each round, or once the mean of"
        " random features of their rows, from which the server learns by itself",
    )
    weights: Literal["clients", "rows"] = Field(
        "clients", description="omega_p: the same for each client, or by its number of rows"
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
        description="of the server's steps, as Nesterov's: with 0.9, twenty rounds do what fifty do without",
    )
    initial_spread: float = Field(
        0.4,
        gt=0,
        description="standard deviation of the first landmarks around the mean, in those of the data",
    )
    aggregation: Aggregation = Field(
        Mean(), description="how the server combines what clients upload; robust rules see each upload"
    )
    random_features: int = Field(
        4096, ge=64, multiple_of=2, description="numbers D that a client uploads if share is embedding"
    )
    frequencies_in: Literal["full", "principal", "random"] = Field(
        "principal",
        description="where the random features' frequencies lie: anywhere, or along so many principal axes of all rows"
        " or random directions; landmarks move there alone",
    )
    frequency_axes: int | None = Field(
        None, ge=1, description="how many axes or directions; default: 50, at most all"
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, as scaled: landmarks then begin, or stand, where these"
        " say, and no moments are asked of the data",
    )

    def landmark_count(self, rows: int, features: int) -> int:
        """Number of landmarks for so many rows of so many features.

        Raises
        ------
        ScenarioError
            If more were asked for than there are rows.
        """
        count = self.landmarks or default_landmarks(rows, features)
        if count > rows:
            raise ScenarioError(
                f"method.landmarks is {count}, but the clients hold only {rows} rows:"
                f" choose at most {rows} landmarks, or leave it out."
            )
        return count

    @property
    def origin(self) -> Origin:
        """Where the landmarks come from."""
        return "learnt"

    @property
    def steps(self) -> int:
        """S, the steps of the server."""
        return DEFAULT_ROUNDS if self.rounds is None else self.rounds

    @property
    def rounds_asked(self) -> int:
        """Rounds in which clients are asked."""
        return 0 if self.share == "embedding" else self.steps

    def releases(self, noise: Mechanism) -> int:
        """How many answers noise covers: each round's, or the one embedding, and the moments of the axes in use."""
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

    def unkeyable(self) -> str | None:
        """Why rows may not be turned: bounds are of the features as they are."""
        if self.bounds is None:
            return None
        return "method.bounds are of the features as they are, which the key hides: leave them out"

    @model_validator(mode="after")
    def _bounds_in_order(self) -> DistributionLearning:
        require_in_order(self.bounds)
        return self

    @model_validator(mode="after")
    def _weigh_alike(self) -> DistributionLearning:
        if self.weights == "rows" and not isinstance(self.aggregation, Mean):
            raise ValueError(
                f"weights are 'rows', but an aggregation of kind {self.aggregation.kind!r} counts every client the"
                " same, since a liar could claim any number of rows: choose weights 'clients' or aggregation 'mean'"
            )
        return self

    @model_validator(mode="after")
    def _share_fits(self) -> DistributionLearning:
        idle = _changed(self, ("random_features", "frequencies_in", "frequency_axes"))
        if self.share != "embedding" and idle:
            raise ValueError(
                f"{' and '.join(idle)} say how rows become random features, and share: {self.share} sends none: set"
                " share: embedding, or leave out what is of it"
            )
        if self.share == "embedding" and self.local_steps > 1:
            raise ValueError(
                f"local_steps is {self.local_steps}, and with share: embedding clients take no steps, the server does:"
                " leave local_steps out, or choose share: gradient or landmarks"
            )
        if self.frequencies_in == "full" and self.frequency_axes is not None:
            raise ValueError(
                "frequency_axes are of frequencies_in: principal or random, and full has them all: leave frequency_axes"
                " out, or choose another"
            )
        if self.server_step is not None and self.share != "gradient":
            raise ValueError(
                f"server_step is of averaged gradients, and share is {self.share}: leave server_step out and set step,"
                " or choose share: gradient"
            )
        if None not in (self.step, self.server_step) and self.local_steps == 1:
            raise ValueError(
                "step is of local steps where server_step is given, and with local_steps 1 clients take none: leave"
                " step out, or choose more local_steps"
            )
        return self

    def axes_of_frequencies(self, features: int) -> int:
        """How many dimensions the frequencies lie in, of so many."""
        return features if self.frequencies_in == "full" else min(self.frequency_axes or 50, features)


class LandmarkSettings(DistributionLearning):
    """Settings of landmarks that are learnt, or that are a frame."""

    landmarks_from: Origin | None = Field(
        None,
        description="learnt: by Algorithm 1; principal: along the principal axes of all rows; random: along random"
        " directions; k-means: means of groups of rows, by sums in rounds (default 20); default: learnt if rounds are"
        " given or share is embedding, else principal",
    )
    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks n_y, one more than the directions of a frame, which has no use for more than"
        " features + 1; default: at most 500, if learnt 50 to 500, twice the features, at most half the rows, by"
        " k-means at most a tenth",
    )
    frame_keys: ClassVar[frozenset[str]] = frozenset({"landmarks", "bounds"})
    """Keys of learning that say something of a frame too."""
    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "moments", *ON.values()})
    """What learning uploads, or a frame."""

    @property
    def origin(self) -> Origin:
        """Where the landmarks come from."""
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
        """Rounds in which clients are asked."""
        return super().rounds_asked if self.origin in ("learnt", "k-means") else 0

    def landmark_count(self, rows: int, features: int) -> int:
        """As :meth:`DistributionLearning.landmark_count`; means of groups are fewer."""
        if self.origin != "k-means":
            return super().landmark_count(rows, features)
        most = rows // LEAST_GROUP
        if most < max(2, self.landmarks or 0):
            raise ScenarioError(
                f"method.landmarks_from: k-means makes each landmark the mean of {LEAST_GROUP} rows at least, and"
                f" {rows} rows make {most} of method.landmarks {self.landmarks or 2}: choose fewer, or"
                " landmarks_from: principal."
            )
        return self.landmarks or min(max(2, rows // (2 * LEAST_GROUP)), max(50, 2 * features), 500)

    def frame_count(self, rows: int, features: int) -> int:
        """Landmarks of a frame: those asked for, as far as a direction more can tell of a distance more.

        ``features`` directions span everything, and the principal axes of centred rows are one less than the rows.
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
                f"{' and '.join(idle)} {verb} of learning, and landmarks {kind} are not learnt: leave"
                f" {they} out, or set landmarks_from: learnt"
            )
        if origin == "k-means" and self.rounds == 0:
            raise ValueError(
                "rounds is 0, and k-means moves landmarks to means of rows in rounds: set rounds: 1 or more"
            )
        return self


def require_among_rows(estimator: str, origin: Origin) -> None:
    """Raise ValueError where a Nystrom estimate would be made of landmarks that stand in a frame."""
    if origin not in ("learnt", "k-means") and estimator != "trilateration":
        raise ValueError(
            f"estimator {estimator!r} needs landmarks that lie among the rows, since it takes what stands between them"
            f" for a sample of what stands between rows, and landmarks from {origin} directions lie around them: choose"
            " estimator trilateration, or set landmarks_from: learnt or k-means"
        )


def _changed(settings: Settings, names: Iterable[str]) -> list[str]:
    """Keys that are not as by default. By value: the scenario.yaml of a run folder gives every key."""
    fields = type(settings).model_fields
    return [name for name in names if getattr(settings, name) != fields[name].default]


def default_landmarks(rows: int, features: int) -> int:
    """Twice the features, at least 50 and at most 500, never more than half the rows (but two)."""
    return max(2, min(max(50, 2 * features), 500, rows // 2))
