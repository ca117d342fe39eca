"""Pydantic model of a scenario: all sections, and values derived from several of them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, field_validator

from raydr.data.loading import Missing
from raydr.data.survey.columns import listing
from raydr.errors import ScenarioError, did_you_mean
from raydr.federation.secure import SecureSums
from raydr.federation.simulated import attackers
from raydr.methods import METHODS, MethodSettings
from raydr.methods.fidelity import LEAST_ROWS
from raydr.metrics import Need, default_metrics
from raydr.privacy.masking import degrees
from raydr.privacy.mechanism import Coverage
from raydr.registry import one_of
from raydr.robust import RobustRule
from raydr.scenarios.schema.audit import AuditSettings
from raydr.scenarios.schema.clients import ClientsSettings
from raydr.scenarios.schema.data import DataSettings
from raydr.scenarios.schema.network import NetworkSettings
from raydr.scenarios.schema.privacy import PrivacySettings
from raydr.scenarios.schema.runtime import FaultSettings, RuntimeSettings
from raydr.settings import LocalPath, Settings

if TYPE_CHECKING:
    AnyMethod: TypeAlias = MethodSettings
else:
    METHODS.close()
    AnyMethod = one_of(tuple(method.settings for method in METHODS.values()))

NAME_PATTERN, LONGEST_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$", 100
"""Pattern and length of a scenario's name, which is part of folder names on every platform."""
MOST_SHOWN = 50
"""Maximum number of columns in ``show``."""


class Sections(Settings):
    """Sections of a scenario, each validated alone; :class:`Scenario` also checks the rules between them."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=LONGEST_NAME, description="name of the run and of its folder"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="seed of every random draw except keys and noise")
    data: DataSettings = Field(description="the table to map")
    clients: ClientsSettings = Field(description="the clients and their rows")
    method: AnyMethod = Field(description="the method: raydr list methods")
    runtime: RuntimeSettings = Field(
        RuntimeSettings(),
        description="where and how the run computes. The map is the same bit for bit if no client is lost",
    )
    network: NetworkSettings | None = Field(
        None,
        description="lines of the sites, on which raydr plan and the report count the time of messages."
        " The simulation itself does not wait",
    )
    privacy: PrivacySettings = Field(PrivacySettings(), description="protection of the messages")
    faults: FaultSettings = Field(FaultSettings(), description="simulated faults and attackers")
    compare: tuple[Literal["central"], ...] = Field(
        (), description="[central] also maps the pooled data with the same embedder, as a reference"
    )
    metrics: Literal["default"] | tuple[str, ...] = Field(
        "default",
        description="default, or a list of names: raydr list metrics. [default, reliable] adds one to those of default."
        " Metrics of neighbours take any number of neighbours, such as trustworthiness_7 or npa_20",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        description="also draw and score the map before the first round and each time this many rounds are done;"
        " 0: never",
    )
    fidelity_rows: int = Field(
        0,
        ge=0,
        description="estimate npa_10, trustworthiness and continuity without pooling, from this many rows of all sites."
        " Every site sees these rows. 0: no estimate; otherwise at least 20",
    )
    show: tuple[str, ...] = Field(
        (),
        max_length=MOST_SHOWN,
        description="mapped columns that the page shows for each row and can colour by. Their values are copied into"
        " the run folder, which otherwise holds no values",
    )
    prior: LocalPath | None = Field(
        None,
        description="run folder of an earlier run with the same method, from whose places or encoder this run starts",
    )
    audit: AuditSettings | None = Field(
        None, description="true, or a section: attack the complete run, as raydr audit does"
    )

    @field_validator("fidelity_rows")
    @classmethod
    def _enough_rows(cls, rows: int) -> int:
        if 0 < rows < LEAST_ROWS:
            raise ValueError(
                f"a standard error from fewer than {LEAST_ROWS} rows is not reliable: set 0 or more rows"
            )
        return rows

    @field_validator("audit", mode="before")
    @classmethod
    def _audit_or_not(cls, audit: Any) -> Any:
        return {} if audit is True else None if audit is False else audit

    @property
    def has_default_metrics(self) -> bool:
        """Whether the metrics include those of ``default``."""
        return "default" in self.metrics

    @property
    def named_metrics(self) -> tuple[str, ...]:
        """Metrics that the scenario names."""
        return () if isinstance(self.metrics, str) else tuple(n for n in self.metrics if n != "default")

    def metric_names(self, lacking: Set[Need] = frozenset()) -> tuple[str, ...]:
        """Return the names of the metrics: those of ``default`` that need none of the ``lacking`` inputs, and more."""
        # All metrics of `default` need pooled rows.
        default = default_metrics(lacking) if self.has_default_metrics and not self.clients.deployed else ()
        return tuple(dict.fromkeys((*default, *self.named_metrics)))

    @property
    def noisy(self) -> bool:
        """Whether noise covers any message of the clients."""
        return self.privacy.noise is not None or self.method.noise_of_its_own

    @property
    def scaling(self) -> str:
        """How columns are scaled: data.scale, or by a noisy survey."""
        return "survey" if self.method.surveys_columns else self.data.scale

    @property
    def missing_values(self) -> Missing:
        """Treatment of missing values when rows are read; a noisy survey keeps all rows."""
        return "median" if self.method.surveys_columns else self.data.missing

    @property
    def hides_by_secrets(self) -> bool:
        """Whether the clients' secrets hide anything: noise, an isometry key, masks or query rows."""
        privacy = self.privacy
        return self.noisy or privacy.isometry_key or privacy.secure_aggregation or bool(self.fidelity_rows)

    @property
    def secure_sums(self) -> SecureSums | None:
        """Colluding and dropping clients that secure sums withstand; None without secure aggregation."""
        if not self.privacy.secure_aggregation:
            return None
        # Exact decimal arithmetic: a quorum of 0.8 leaves 0.2.
        return SecureSums(self.privacy.colluding, float(1 - Fraction(repr(self.runtime.quorum))))

    @property
    def robust_rule(self) -> RobustRule | None:
        """The robust aggregation rule; None if the method uses only sums and means."""
        rule = getattr(self.method, "aggregation", None)
        return rule if isinstance(rule, RobustRule) else None

    @property
    def coverage(self) -> Coverage | None:
        """The calibrated mechanism and the part of the clients that applies it; None without noise."""
        noise = self.privacy.noise
        if noise is None:
            return None
        return self.privacy.coverage(self.method.releases(noise))

    def require_columns(self, mapped: Sequence[str]) -> None:
        """Raise ScenarioError if ``show`` names a column that is not mapped, or names one twice."""
        for column in self.show:
            if column not in mapped:
                raise ScenarioError(
                    f"show names the column {column!r}, which is not mapped{did_you_mean(column, mapped)}. Mapped"
                    f" columns: {listing(mapped)}. Correct the name, or leave it out."
                )
            if self.show.count(column) > 1:
                raise ScenarioError(f"show names the column {column!r} twice: leave one out.")

    def require_clients(self, count: int) -> None:
        """Raise ScenarioError if the scenario does not fit this number of clients."""
        absent = sorted({crash.client for crash in self.faults.crashes if crash.client >= count})
        if absent:
            raise ScenarioError(
                f"faults.crashes names client {absent[0]}, but there are {count} clients, numbered from 0: choose at"
                f" most {count - 1}."
            )
        liars = self.faults.adversary
        if liars is not None and not attackers(self.seed, count, liars.fraction):
            raise ScenarioError(
                f"faults.adversary.fraction is {liars.fraction:g}, which is no client of {count}: choose at least"
                f" {1 / count:.2g}, or leave faults.adversary out."
            )
        coverage = self.coverage
        if coverage is not None:
            coverage.count(count)
        taking_part = max(1, round(self.clients.participation * count))
        if self.robust_rule is not None:
            self.robust_rule.require(taking_part)
        if self.secure_sums is not None:
            degrees(taking_part, self.secure_sums.colluding, self.secure_sums.dropping)
