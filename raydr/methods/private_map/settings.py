"""Settings of a private map, and the division of its budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from raydr.embedding import TSNE
from raydr.errors import ScenarioError
from raydr.methods.method import MethodSettings
from raydr.privacy.accounting import Budget, gaussian_multiplier
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Delta, Relation
from raydr.privacy.shares import summed_deviation
from raydr.settings import require_in_order
from raydr.statistics.histograms import sensitivity
from raydr.statistics.noisy_survey import SurveyNoise

COUNT_WEIGHT = 0.5
"""Weight of a cell's count relative to its residuals in units of their clip: one release carries both."""
_ROUNDING = 1.0 + 1e-9
CELL_SENSITIVITY: Mapping[Relation, float] = {
    "zero-out": math.sqrt(1.0 + COUNT_WEIGHT**2) * _ROUNDING,
    "replace-one": 2.0 * _ROUNDING,
}
"""One record adds a residual of norm at most 1 and one count to a single cell. Two records in one cell have the same
count, and residuals up to 2 apart. In two cells they are sqrt(2 (1 + COUNT_WEIGHT^2)) apart, which is less."""
FIRST_SENSITIVITY: Mapping[Relation, float] = {
    "zero-out": math.sqrt(2.0) * _ROUNDING,
    "replace-one": 2.0 * _ROUNDING,
}
"""One record adds a vector x of norm at most 1 and |x|^2. The squared distance of two is |x - y|^2 + (|x|^2 -
|y|^2)^2, at most (a + b)^2 (1 + (a - b)^2) for norms a and b. Its maximum is 4, where both are 1."""
SCATTER_SENSITIVITY: Mapping[Relation, float] = {
    "zero-out": _ROUNDING,
    "replace-one": math.sqrt(2.0) * _ROUNDING,
}
"""One record adds x x^T with |x| <= 1; the norm of its upper triangle is at most that of the whole. Two
matrices are at most sqrt(2) apart, because their inner product (x . y)^2 is not negative."""
COUNT_SENSITIVITY: Mapping[Relation, float] = {
    "zero-out": _ROUNDING,
    "replace-one": math.sqrt(2.0) * _ROUNDING,
}
"""One record adds 1 to one count."""

FIRST_SHARE, SCATTER_SHARE = 0.04, 0.12
"""Parts of the budget for mean and scatter. *Measured*, MNIST, 60,000 rows, epsilon 1: 20 axes from 0.2 of the budget
keep 0.978 of the variance that the exact ones keep, from 0.3 of it 0.984. The cells gain more from the rest."""

SURVEY_SHARE = 0.1
"""Part of the budget for the two releases of the survey, if there is one; the other parts are parts of the rest.
*Measured*, epsilon 1, means of six seeds, trustworthiness with 0.05, 0.1 and 0.15: heart disease 0.850, 0.858, 0.877;
German credit 0.762, 0.768 and 0.766, 5,000 rows of Beijing air 0.935, 0.943 and 0.943. Accuracy shows no difference."""
SURVEYED_CLIP = 1.5
"""Clip norm of surveyed rows, whose mean squared length is about 1."""

_ROWS_OF_A_CELL = 7.0
"""Rows that a cell needs, in noise multipliers of a round: the noise of its centre is then half of its own width."""
_MOST_CELLS, _LEAST_CELLS = 2000, 4


class PrivateMapSettings(TSNE, MethodSettings):
    """Keys of :class:`raydr.methods.private_map.server.PrivateMap`."""

    kind: Literal["private-map"] = "private-map"  # type: ignore[assignment]
    epsilon: float = Field(
        gt=0,
        description="total privacy cost of all releases, at delta, against an adversary who sees sums"
        " alone and knows the shares of one client, or of the colluding ones (privacy.colluding)",
    )
    delta: Delta | None = Field(None, description="delta of the total cost; default: privacy.delta")
    relation: Relation = Field(
        "zero-out",
        description="neighbouring data sets: zero-out replaces one record by zero, so that it adds nothing"
        " to any sum; replace-one replaces it by any other record, for 1.4 to 1.8 times the noise",
    )
    per: Literal["client", "sum"] = Field(
        "sum",
        description="where noise is added: to each client's summand, or to the sum, with a share from"
        " each client",
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, after scaling. Rows are then centred on"
        " the middle of the bounds, and the bounds limit their length. Without bounds and clip, a noisy survey of the"
        " columns, which costs a part of epsilon, finds scales, words and the clip norm",
    )
    clip: float | None = Field(
        None,
        gt=0,
        description="clip norm of rows, measured from the middle of the bounds, or from 0; default: the longest"
        " row that bounds allow",
    )
    axes: int = Field(
        20,
        ge=1,
        le=200,
        description="largest number of axes of the frame; axes hidden by their noise are left out",
    )
    cells: int | None = Field(
        None,
        ge=2,
        le=20_000,
        description="largest number of cells, which are the landmarks; default: as many as noise and rows allow, and if"
        " these are under 40 and clients have under 200 rows on average, landmarks are drawn from them",
    )
    rounds: int = Field(5, ge=1, le=100, description="rounds in which the centres of the cells move")
    own: float = Field(
        0.4,
        ge=0,
        lt=1,
        description="weight of a client's own neighbours, relative to the landmarks, when it places"
        " its rows; 0: landmarks alone, as for new rows",
    )
    density: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="part of the budget for a picture of the density of all records on the map, which"
        " `raydr report --released` draws: 0.1 is enough; 0: no picture",
    )
    novelty_share: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="part of the budget for distances of mapped rows from the landmarks, by which `raydr transform`"
        " tells how novel new rows are: 0.05 is enough for tens of thousands of rows; 0: novelty is unknown",
    )
    placing_iterations: int = Field(100, ge=0, description="iterations in which clients place their rows")

    @model_validator(mode="after")
    def _known_extent(self) -> PrivateMapSettings:
        require_in_order(self.bounds)
        return self

    @property
    def surveys_columns(self) -> bool:
        """Whether a noisy survey prepares the rows: their extent is not given."""
        return self.bounds is None and self.clip is None

    def survey_noise(self, budget: Budget, clients: int, columns: int) -> SurveyNoise:
        """Return the noise of one of the two releases of a survey, on this many columns."""
        shares = NoiseShares.of(self, budget, clients, surveyed=True)
        moved = sensitivity(columns, self.relation)
        norm = sensitivity(columns, "zero-out")
        return SurveyNoise(shares.noise(shares.survey, norm), shares.summed * shares.survey * moved)

    @property
    def centre(self) -> float:
        """Centre of the rows, in each feature."""
        return 0.0 if self.bounds is None else self.bounds[0] + (self.bounds[1] - self.bounds[0]) / 2.0

    def reach(self, features: int) -> float:
        """Return the clip norm of rows with this many features."""
        if self.clip is not None:
            return self.clip
        if self.bounds is None:
            return SURVEYED_CLIP
        low, high = self.bounds
        return (high - low) / 2.0 * math.sqrt(features) * (1.0 + 1e-9)

    def check(self, rows: int, features: int) -> None:
        """Check that there are enough rows for cells."""
        if rows < _LEAST_CELLS:
            raise ScenarioError(f"A private map needs at least {_LEAST_CELLS} rows, and there are {rows}.")


@dataclass(kw_only=True, frozen=True)
class NoiseShares:
    """Noise multipliers of all releases, which together cost the claimed epsilon.

    Attributes
    ----------
    survey : float
        For each of the two releases of the survey; infinite without one.
    first, scatter : float
        For the mean, and for the second moments around it.
    rounds : tuple of float
        For each round on cells.
    density : float
        For the density; infinite without it.
    novelty : float
        For the novelty of new rows; infinite without it.
    per : {"client", "sum"}
        What the noise covers.
    relation : {"zero-out", "replace-one"}
        Relation of neighbouring data sets.
    summed : float
        Deviation of the noise in a sum, in units of the noise that covers it.
    """

    survey: float
    first: float
    scatter: float
    rounds: tuple[float, ...]
    density: float
    novelty: float
    per: Literal["client", "sum"]
    relation: Relation
    summed: float

    @classmethod
    def of(
        cls, settings: PrivateMapSettings, run: Budget, clients: int, *, surveyed: bool = False
    ) -> NoiseShares:
        """Divide the budget of the settings, in a run of ``clients`` clients, ``surveyed`` or not.

        Gaussian releases compose by the sum of their inverse squared multipliers, so parts of the budget are
        parts of that sum. Early rounds have few cells, with many rows each, and need less.
        """
        whole = gaussian_multiplier(settings.epsilon, settings.delta or run.delta)
        survey = SURVEY_SHARE if surveyed else 0.0
        whole, alone = whole / math.sqrt(1.0 - survey), whole
        weights = [min(4.0, 1.0 + round) for round in range(settings.rounds)]
        rest = 1.0 - FIRST_SHARE - SCATTER_SHARE - settings.density - settings.novelty_share
        rounds = tuple(whole / math.sqrt(rest * weight / sum(weights)) for weight in weights)
        return cls(
            survey=alone / math.sqrt(survey / 2.0) if survey else math.inf,
            first=whole / math.sqrt(FIRST_SHARE),
            scatter=whole / math.sqrt(SCATTER_SHARE),
            rounds=rounds,
            density=whole / math.sqrt(settings.density) if settings.density else math.inf,
            novelty=whole / math.sqrt(settings.novelty_share) if settings.novelty_share else math.inf,
            per=settings.per,
            relation=settings.relation,
            summed=summed_deviation(settings.per == "sum", clients, run.colluding),
        )

    def noise(self, multiplier: float, clip: float) -> GaussianNoise:
        """Return the mechanism of one release clipped to a norm."""
        return GaussianNoise(
            on="moments", multiplier=multiplier, per=self.per, clip=clip, relation=self.relation
        )

    @property
    def scatter_deviation(self) -> float:
        """Standard deviation of the noise on an entry of the scatter, in units of the squared clip."""
        return self.summed * self.scatter * SCATTER_SENSITIVITY[self.relation]

    def deviation(self, round: int) -> float:
        """Return the standard deviation of the noise on a sum of cells in a round, from 0 on, in units of the clip."""
        return self.summed * self.rounds[round] * CELL_SENSITIVITY[self.relation]

    def count_deviation(self, multiplier: float) -> float:
        """Return the standard deviation of the noise on a count of records, of a release with this multiplier."""
        return self.summed * multiplier * COUNT_SENSITIVITY[self.relation]

    def cells(self, settings: PrivateMapSettings, rows: int) -> tuple[int, ...]:
        """Return the number of cells in each round, independent of the data, by the noise on a centre.

        The first two rounds have a sixteenth and a quarter, so that splits of heavy cells, not a random draw,
        follow the density.
        """
        affordable = rows / (_ROWS_OF_A_CELL * self.deviation(len(self.rounds) - 1))
        most = max(_LEAST_CELLS, min(_MOST_CELLS, int(affordable), rows))
        wanted = min(settings.cells or most, rows)
        fewer = [max(0, min(2, settings.rounds - 1) - round) for round in range(settings.rounds)]
        return tuple(min(wanted, max(8, wanted // 4**step)) for step in fewer)
