"""Gaussian noise of a client's own making: by a level that promises nothing, or calibrated, with a claim.

How much noise there is can be said in four ways. ``level`` is in units of the values themselves, as P1's experiments
have it; it depends on the data, so nothing is claimed for it. ``sigma`` is a deviation, ``multiplier`` a deviation over
the sensitivity, and ``epsilon`` what the whole run's noise is to come to, of which the accountant makes a multiplier.

Where something is claimed, values and noise are multiples of a step of sigma / 2^40: no digit below it tells of the
values (Mironov 2012). The noise is a discrete Gaussian on these steps, within 2^-60 of it and of a Gaussian rounded to
them in total variation, a number (:mod:`raydr.privacy.discrete_gaussian`). Where the ring's resolution is coarser, the
noise is rounded to that. Rounding values moves two neighbours apart by at most one step in each entry, which the claim
counts; records are rounded towards 0, which moves none further than its length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array, FloatArray
from raydr.fixed_point import shortened
from raydr.privacy.accounting import gaussian_multiplier
from raydr.privacy.discrete_gaussian import discrete_gaussian
from raydr.privacy.mechanism import Bound, Claim, Delta, Mechanism, Quantity, Relation, Unit, mechanism

_STEPS = 40
"""Binary digits of the noise below its deviation."""
_TAIL = 12.0
"""Deviations beyond which no value leaves: once in 10^32 numbers."""


@mechanism
class GaussianNoise(Mechanism):
    """Gaussian noise that clients add."""

    on: Literal[
        "data", "variable", "gradient", "embedding", "moments", "distances", "update", "surrogate"
    ] = Field(
        description="what it covers: records, a client's landmarks (P1 5.2), its gradient, its random features and the"
        " moments of their frame, the moments of principal axes, distances that are posted, all that training an"
        " encoder uploads, or surrogates alone (P2 6)"
    )
    level: float | None = Field(
        None,
        gt=0,
        description="deviation in units of the data: on data the features' own, on distances a record's mean distance,"
        " on the gradient that of all its entries (P1's beta), on surrogates their root mean square; claims nothing",
    )
    sigma: float | None = Field(None, gt=0, description="deviation in units of what it covers")
    multiplier: float | None = Field(
        None, gt=0, description="deviation over sensitivity; made of epsilon where that is given"
    )
    epsilon: float | None = Field(
        None, gt=0, description="what all answers under it come to together, at delta"
    )
    delta: Delta | None = Field(None, description="of epsilon; default: privacy.delta")
    per: Literal["client", "sum"] = Field(
        "client",
        description="whether each upload is covered by itself, or their sum, to which each adds its share",
    )
    relation: Relation = Field(
        "zero-out",
        description="what neighbouring data have in a record's place: nothing, so that it adds zero to every sum"
        " (dp_accounting's REPLACE_SPECIAL), or any other record; row counts are public in both. Default on data:"
        " replace-one, since each record posts something of its own",
    )
    decay: Literal["none", "theorem-2"] = Field(
        "none",
        description="deviation by round: the same, or falling as 1 / sqrt(round), more budget to late rounds",
    )
    clip: float | None = Field(
        None,
        gt=0,
        description="norm to which records are cut: on data seen from 0, before any scaling; of moments from their"
        " centre; of updates, a client's whole update, or what each pair of records adds to it",
    )
    unit: Unit = Field(
        "record",
        description="of noise on updates: what differs between neighbouring data, one record or a client with all its"
        " records (DP-FedAvg)",
    )
    stage: Literal["learning", "all"] = Field(
        "learning",
        description="of noise on data: for Algorithm 1 alone (P1 5.3), or for all that follows too (P1 (23))",
    )
    kind: Literal["gaussian-noise"] = "gaussian-noise"

    @model_validator(mode="before")
    @classmethod
    def _relation_of_what_is_posted(cls, content: Any) -> Any:
        """Default relation of noise on data: each record posts something, so its absence could be seen."""
        if isinstance(content, Mapping) and content.get("on") == "data":
            return {"relation": "replace-one", **content}
        return content

    @model_validator(mode="after")
    def _one_strength(self) -> Self:
        ways = {
            "level": self.level,
            "sigma": self.sigma,
            "epsilon": self.epsilon,
            "multiplier": self.multiplier if self.epsilon is None else None,
        }
        given = [name for name, value in ways.items() if value is not None]
        if len(given) != 1:
            raise ValueError(
                "say how much noise by exactly one of level, sigma, multiplier and epsilon;"
                + (f" here are {' and '.join(given)}" if given else " here is none of them")
            )
        if self.delta is not None and self.epsilon is None:
            raise ValueError("delta is of epsilon: leave it out, or give epsilon")
        return self

    @model_validator(mode="after")
    def _where_it_means_something(self) -> Self:
        if self.on == "distances" and self.level is None:
            raise ValueError(
                "nothing bounds how far a record moves its distances, so noise on them can claim nothing: give level,"
                " or put noise on data"
            )
        if self.on in ("embedding", "moments", "update") and self.level is not None:
            raise ValueError(
                f"level is of P1's experiments, which have no {self.on}: give epsilon, multiplier or sigma"
            )
        if self.on == "surrogate" and self.level is None:
            raise ValueError(
                "noise on surrogates alone can claim nothing, since all else leaves bare: give level, or put noise on"
                " update, which covers all that training uploads"
            )
        if self.per == "sum" and (self.on in ("data", "distances") or self.level is not None):
            raise ValueError(
                "per: sum is of calibrated noise on what is added up (gradient, variable, embedding, moments, update):"
                " choose per: client"
            )
        if self.clip is not None and self.on not in ("data", "moments", "embedding", "update"):
            raise ValueError(f"clip cuts records, and noise on {self.on} needs no such bound: leave it out")
        if self.on == "data" and self.clip is None and self.level is None and self.sigma is None:
            raise ValueError("noise on data can be calibrated only if records are cut: give clip, a norm")
        if self.on == "moments" and self.clip is None:
            raise ValueError("moments of records of any length have no sensitivity: give clip, a norm")
        if self.on == "update" and self.clip is None:
            raise ValueError("updates of any length have no sensitivity: give clip, a norm")
        if self.unit == "client" and self.on != "update":
            raise ValueError(
                f"unit: client is of noise on updates, and noise on {self.on} hides records: leave unit out"
            )
        if self.decay != "none" and self.on not in ("gradient", "variable"):
            raise ValueError(f"decay is by round, and noise on {self.on} is added once: leave it out")
        if self.stage != "learning" and self.on != "data":
            raise ValueError(f"stage is of noise on data, and this is on {self.on}: leave it out")
        return self

    @property
    def words(self) -> str:
        """How much noise there is, and whose; what it is worth is the accountant's to say.

        >>> GaussianNoise(on="distances", level=0.1).words
        'Gaussian noise of level 0.1 on distances'
        >>> GaussianNoise(on="gradient", multiplier=2.5, per="sum").words
        'Gaussian noise of 2.5 times the sensitivity on the sum of gradients'
        """
        if self.level is not None:
            much = f"level {self.level:g}"
        elif self.sigma is not None:
            much = f"deviation {self.sigma:g}"
        elif self.multiplier is not None:
            much = f"{self.multiplier:.4g} times the sensitivity"
        else:
            much = f"epsilon {self.epsilon:g}"
        plural = {
            "gradient": "gradients",
            "variable": "variables",
            "embedding": "embeddings",
            "update": "updates",
        }
        where = f"the sum of {plural.get(self.on, self.on)}" if self.per == "sum" else self.on
        return f"Gaussian noise of {much} on {where}"

    @property
    def deviation(self) -> float:
        """The level; NaN where noise is not told in units of the quantity."""
        return math.nan if self.level is None else self.level

    @property
    def cut(self) -> float | None:
        """The clip norm."""
        return self.clip

    @property
    def for_good(self) -> bool:
        """Whether it stays on the records for all that is made of them."""
        return self.on == "data" and self.stage == "all"

    @property
    def shared(self) -> bool:
        """Whether each client adds its share alone."""
        return self.per == "sum"

    @property
    def protects(self) -> Unit:
        """Records, or clients as wholes."""
        return self.unit

    def parted(self, share: float, sensitivity: float) -> Self:
        """Return the same, told by a multiplier that spends so many times what a release of ``sensitivity`` does."""
        multiplier = self.multiplier
        if self.sigma is not None:
            multiplier = self.sigma / sensitivity
        if multiplier is None:
            return self
        return self.model_copy(update={"sigma": None, "multiplier": multiplier / math.sqrt(share)})

    def calibrated(self, releases: float, delta: float) -> Self:
        """Return the same with the multiplier at which so many releases come to its epsilon, at its delta or this.

        Without an epsilon, nothing changes. Under ``decay`` the multiplier is that of the first round.
        """
        if self.epsilon is None or not releases:
            return self
        if self.decay != "none":
            releases = releases * (releases + 1) / 2  # 1 / z_s^2 = s / z_1^2
        multiplier = gaussian_multiplier(self.epsilon, self.delta or delta, releases)
        return self.model_copy(update={"multiplier": multiplier})

    def in_round(self, done: int) -> Self:
        """Noise of the round after ``done`` others: under ``decay`` it falls as 1 / sqrt(round)."""
        if self.decay == "none":
            return self
        part = 1.0 / math.sqrt(done + 1.0)
        strength = {name: getattr(self, name) for name in ("level", "sigma", "multiplier")}
        return self.model_copy(update={name: part * value for name, value in strength.items() if value})

    def _deviation(self, quantity: Quantity) -> float | Float64Array:
        """Standard deviation of the noise on a quantity, for its share."""
        if self.level is not None:
            return self.level * quantity.unit
        if self.sigma is not None:
            return quantity.share * self.sigma
        if self.multiplier is None:
            raise TypeError(f"{self.words} was not calibrated before it was sent to a client")
        return quantity.share * self.multiplier * quantity.sensitivity

    def limited(self, rows: FloatArray) -> Float64Array:
        """Records of at most the norm ``clip``, shortened where they are longer."""
        if self.clip is None:
            return rows.astype(np.float64)
        # 2^-40 is more than the rounding of a length.
        return (1.0 - 2.0**-40) * self.clip * shortened(rows, self.clip)

    @property
    def record_sensitivity(self) -> float:
        """Return how far a record, cut to the clip norm, is from 0, or from any other one."""
        farthest = math.inf if self.clip is None else self.clip
        return 2.0 * farthest if self.relation == "replace-one" else farthest

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """Values with noise; rounded to the step of the noise where something is claimed for it."""
        values, deviation = quantity.values, self._deviation(quantity)
        if self.level is not None:
            return np.asarray(values + deviation * stream.standard_normal(values.shape))
        fine = step_of(float(deviation))
        step = max(fine, quantity.resolution)
        noise = discrete_gaussian(math.ceil(float(deviation) / fine), values.size, stream).reshape(
            values.shape
        )
        rounded = np.trunc(values / step) if self.on == "data" else np.rint(values / step)
        return np.asarray(step * (rounded + np.rint(fine / step * noise)))

    def claim(
        self, sensitivity: float, share: float = 1.0, *, values: int = 0, resolution: float = 0.0
    ) -> Claim | None:
        """Deviation and sensitivity, rounding included; nothing where the level or an unbounded record decides."""
        if self.level is not None or not math.isfinite(sensitivity):
            return None
        deviation = float(self._deviation(Quantity(np.zeros(0), sensitivity=sensitivity, share=share)))
        return Claim(deviation, sensitivity + math.sqrt(values) * max(step_of(deviation), resolution))

    def reach(self, largest: Bound, sensitivity: float) -> Bound:
        """Twelve deviations more, of a client with a single record and the whole noise."""
        # A deviation of values is at most their largest, and the whole gradient is a sum of two parts of that size.
        unit = 2.0 * np.max(largest)
        widest = self._deviation(Quantity(np.zeros(0), unit=float(unit), sensitivity=sensitivity))
        return largest + _TAIL * float(widest)


def step_of(deviation: float) -> float:
    """Power of two of which noise and the values that it covers are multiples."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _STEPS)
