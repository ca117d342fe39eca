"""Gaussian noise that clients add: by a level without a claim, or calibrated with a claim.

There are four ways to set the amount of noise. ``level`` is relative to the values themselves, as in P1's experiments.
It depends on the data, so it claims no epsilon. ``sigma`` is a deviation. ``multiplier`` is a deviation divided by the
sensitivity. ``epsilon`` is the total epsilon of the run's noise, from which the accountant computes a multiplier.

With a claim, values and noise are multiples of a step of sigma / 2^40, so that lower digits reveal nothing about the
values (Mironov 2012). The noise is a discrete Gaussian on these steps. In total variation, each number is within 2^-60
of it and of a Gaussian rounded to the steps (:mod:`raydr.privacy.discrete_gaussian`). If the ring's resolution is
coarser, the noise is rounded to that resolution. Rounding the values moves two neighbours apart by at most one step in
each entry, and the claim includes this. Records are rounded towards 0, so that none becomes longer.
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
"""Largest noise that leaves, in deviations: exceeded once in 10^32 numbers."""


@mechanism
class GaussianNoise(Mechanism):
    """Gaussian noise that clients add."""

    on: Literal[
        "data", "variable", "gradient", "embedding", "moments", "distances", "update", "surrogate"
    ] = Field(
        description="what the noise covers: records, a client's landmarks (P1 5.2), its gradient, its random"
        " features and the moments of their frame, the moments of principal axes, posted"
        " distances, everything that encoder training uploads, or surrogates alone (P2 6)"
    )
    level: float | None = Field(
        None,
        gt=0,
        description="noise level relative to the data, in units of: the features' deviation (data), a record's"
        " mean distance (distances), the deviation of all entries (gradient, P1's beta), or the"
        " root mean square (surrogate); claims no epsilon",
    )
    sigma: float | None = Field(None, gt=0, description="standard deviation, in the units of what it covers")
    multiplier: float | None = Field(
        None, gt=0, description="deviation divided by sensitivity; computed from epsilon if that is given"
    )
    epsilon: float | None = Field(
        None, gt=0, description="total epsilon of all replies under this noise, at delta"
    )
    delta: Delta | None = Field(None, description="delta of that epsilon; default: privacy.delta")
    per: Literal["client", "sum"] = Field(
        "client",
        description="client covers each upload; sum covers only the sum, to which each client adds a share of"
        " the noise",
    )
    relation: Relation = Field(
        "zero-out",
        description="how neighbouring data differ in one record: zero-out removes it, so that it adds zero to"
        " every sum (dp_accounting's REPLACE_SPECIAL); replace-one puts any other record in its"
        " place. Row counts are public in both. Default for data: replace-one, because each record"
        " posts a value of its own",
    )
    decay: Literal["none", "theorem-2"] = Field(
        "none",
        description="deviation by round: none keeps it constant; theorem-2 lowers it as 1 / sqrt(round), which"
        " spends more budget in late rounds",
    )
    clip: float | None = Field(
        None,
        gt=0,
        description="clip norm: for data, of each record from 0, before any scaling; for moments, from their"
        " centre; for updates, of a client's whole update, or of what each pair of records adds to"
        " it",
    )
    unit: Unit = Field(
        "record",
        description="for noise on updates: neighbouring data differ in one record, or in one client with all"
        " its records (DP-FedAvg)",
    )
    stage: Literal["learning", "all"] = Field(
        "learning",
        description="for noise on data: learning covers Algorithm 1 only (P1 5.3); all covers everything after"
        " it too (P1 (23))",
    )
    kind: Literal["gaussian-noise"] = "gaussian-noise"

    @model_validator(mode="before")
    @classmethod
    def _relation_of_what_is_posted(cls, content: Any) -> Any:
        """Set the default relation of noise on data: each record posts something, so its absence would show."""
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
                "expected exactly one of level, sigma, multiplier and epsilon;"
                + (f" got {' and '.join(given)}" if given else " got none")
            )
        if self.delta is not None and self.epsilon is None:
            raise ValueError("delta needs epsilon: leave delta out, or set epsilon")
        return self

    @model_validator(mode="after")
    def _where_it_means_something(self) -> Self:
        if self.on == "distances" and self.level is None:
            raise ValueError(
                "noise on distances cannot claim an epsilon, because nothing bounds how far a record moves them:"
                " set level, or set on: data"
            )
        if self.on in ("embedding", "moments", "update") and self.level is not None:
            raise ValueError(
                f"level is not available for noise on {self.on}: set epsilon, multiplier or sigma"
            )
        if self.on == "surrogate" and self.level is None:
            raise ValueError(
                "noise on surrogates alone cannot claim an epsilon, because the other uploads stay unprotected:"
                " set level, or set on: update, which covers everything that training uploads"
            )
        if self.per == "sum" and (self.on in ("data", "distances") or self.level is not None):
            raise ValueError(
                "per: sum needs calibrated noise (not level) on something that is summed (gradient, variable,"
                " embedding, moments, update): set per: client"
            )
        if self.clip is not None and self.on not in ("data", "moments", "embedding", "update"):
            raise ValueError(f"noise on {self.on} does not use clip: leave clip out")
        if self.on == "data" and self.clip is None and self.level is None and self.sigma is None:
            raise ValueError("noise on data can be calibrated only with a clip norm: set clip")
        if self.on == "moments" and self.clip is None:
            raise ValueError(
                "noise on moments needs a clip norm, because records of any length have no bounded sensitivity:"
                " set clip"
            )
        if self.on == "update" and self.clip is None:
            raise ValueError(
                "noise on update needs a clip norm, because updates of any length have no bounded sensitivity: set"
                " clip"
            )
        if self.unit == "client" and self.on != "update":
            raise ValueError(
                f"unit: client is available for noise on update only, and this is noise on {self.on}: leave unit"
                " out"
            )
        if self.decay != "none" and self.on not in ("gradient", "variable"):
            raise ValueError(f"decay works by round, but noise on {self.on} is added once: leave decay out")
        if self.stage != "learning" and self.on != "data":
            raise ValueError(
                f"stage is available for noise on data only, and this is noise on {self.on}: leave stage out"
            )
        return self

    @property
    def words(self) -> str:
        """The amount of noise and what it covers.

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
        """The level; NaN if the noise is not set by a level."""
        return math.nan if self.level is None else self.level

    @property
    def cut(self) -> float | None:
        """The clip norm."""
        return self.clip

    @property
    def for_good(self) -> bool:
        """Whether the noise stays on the records for everything computed from them."""
        return self.on == "data" and self.stage == "all"

    @property
    def shared(self) -> bool:
        """Whether each client adds only its share of the noise."""
        return self.per == "sum"

    @property
    def protects(self) -> Unit:
        """The unit of the claim: a record or a client."""
        return self.unit

    def parted(self, share: float, sensitivity: float) -> Self:
        """Return the noise with the multiplier that spends ``share`` times a release of ``sensitivity``."""
        multiplier = self.multiplier
        if self.sigma is not None:
            multiplier = self.sigma / sensitivity
        if multiplier is None:
            return self
        return self.model_copy(update={"sigma": None, "multiplier": multiplier / math.sqrt(share)})

    def calibrated(self, releases: float, delta: float) -> Self:
        """Return the noise with the multiplier at which this many releases cost its epsilon.

        The delta is the mechanism's own, or ``delta`` if it has none. Without an epsilon, nothing changes. Under
        ``decay`` the multiplier is that of the first round.
        """
        if self.epsilon is None or not releases:
            return self
        if self.decay != "none":
            releases = releases * (releases + 1) / 2  # 1 / z_s^2 = s / z_1^2
        multiplier = gaussian_multiplier(self.epsilon, self.delta or delta, releases)
        return self.model_copy(update={"multiplier": multiplier})

    def in_round(self, done: int) -> Self:
        """Return the noise for the round after ``done`` rounds: under ``decay`` it falls as 1 / sqrt(round)."""
        if self.decay == "none":
            return self
        part = 1.0 / math.sqrt(done + 1.0)
        strength = {name: getattr(self, name) for name in ("level", "sigma", "multiplier")}
        return self.model_copy(update={name: part * value for name, value in strength.items() if value})

    def _deviation(self, quantity: Quantity) -> float | Float64Array:
        """Return the standard deviation of this client's noise on a quantity."""
        if self.level is not None:
            return self.level * quantity.unit
        if self.sigma is not None:
            return quantity.share * self.sigma
        if self.multiplier is None:
            raise TypeError(f"{self.words} was not calibrated before it was sent to a client")
        return quantity.share * self.multiplier * quantity.sensitivity

    def limited(self, rows: FloatArray) -> Float64Array:
        """Return the records clipped to norm ``clip``, in float64."""
        if self.clip is None:
            return rows.astype(np.float64)
        # 2^-40 exceeds the rounding error of a norm.
        return (1.0 - 2.0**-40) * self.clip * shortened(rows, self.clip)

    @property
    def record_sensitivity(self) -> float:
        """The largest distance of a clipped record from 0, or from any other record."""
        farthest = math.inf if self.clip is None else self.clip
        return 2.0 * farthest if self.relation == "replace-one" else farthest

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """Return the values with noise; rounded to the step of the noise if there is a claim."""
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
        """Return deviation and sensitivity, rounding included; None for a level or unbounded sensitivity."""
        if self.level is not None or not math.isfinite(sensitivity):
            return None
        deviation = float(self._deviation(Quantity(np.zeros(0), sensitivity=sensitivity, share=share)))
        return Claim(deviation, sensitivity + math.sqrt(values) * max(step_of(deviation), resolution))

    def reach(self, largest: Bound, sensitivity: float) -> Bound:
        """Return ``largest`` plus twelve deviations, for a client with one record and the whole noise."""
        # The deviation of values is at most their largest, and the gradient is the sum of two parts of that size.
        unit = 2.0 * np.max(largest)
        widest = self._deviation(Quantity(np.zeros(0), unit=float(unit), sensitivity=sensitivity))
        return largest + _TAIL * float(widest)


def step_of(deviation: float) -> float:
    """Return the power of two of which the noise and the values that it covers are multiples."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _STEPS)
