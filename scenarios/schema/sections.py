"""All sections of a scenario, and what follows from them together."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, field_validator

from raydr.data.columns import listing
from raydr.errors import ScenarioError, did_you_mean
from raydr.federation.secure import SecureSums
from raydr.federation.simulated import attackers
from raydr.methods import METHODS, MethodSettings
from raydr.privacy.masking import degrees
from raydr.privacy.mechanism import Coverage
from raydr.registry import one_of
from raydr.robust import RobustRule
from raydr.scenarios.schema.audit import AuditSettings
from raydr.scenarios.schema.clients import ClientsSettings
from raydr.scenarios.schema.data import DataSettings
from raydr.scenarios.schema.privacy import PrivacySettings
from raydr.scenarios.schema.runtime import FaultSettings, RuntimeSettings
from raydr.settings import Settings

if TYPE_CHECKING:
    AnyMethod: TypeAlias = MethodSettings
else:
    METHODS.close()
    AnyMethod = one_of(tuple(method.settings for method in METHODS.values()))

NAME_PATTERN, LONGEST_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$", 100
"""Of a scenario's name, which is part of the name of a folder wherever it runs."""
MOST_SHOWN = 50
"""Columns that a page tells of each row."""


class Sections(Settings):
    """The sections of a scenario, each right by itself; :class:`Scenario` is one that keeps the rules between them."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=LONGEST_NAME, description="names the run and its folder"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of every random draw: another seed, another run")
    data: DataSettings = Field(description="the table to map")
    clients: ClientsSettings = Field(description="who holds its rows")
    method: AnyMethod = Field(description="how it is mapped: raydr list methods")
    runtime: RuntimeSettings = Field(
        RuntimeSettings(),
        description="where and how it runs; as long as no client is lost, changes no bit of the map",
    )
    privacy: PrivacySettings = Field(PrivacySettings(), description="what is to protect the messages")
    faults: FaultSettings = Field(FaultSettings(), description="what goes wrong on purpose")
    compare: tuple[Literal["central"], ...] = Field(
        (), description="[central] also maps the pooled data by the same embedder: a reference"
    )
    metrics: Literal["default"] | tuple[str, ...] = Field(
        "default",
        description="default for all, or a list of names: raydr list metrics; those of neighbours with any number of"
        " them, as trustworthiness_7 or npa_20",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        description="also draw and score the map after every so many rounds, and before the first; 0: do not",
    )
    show: tuple[str, ...] = Field(
        (),
        max_length=MOST_SHOWN,
        description="mapped columns that the page tells of each row and colours by: their values are copied into the"
        " run folder, which holds none otherwise",
    )
    audit: AuditSettings | None = Field(
        None, description="true, or a section: attack the run once it is whole, as raydr audit does"
    )

    @field_validator("audit", mode="before")
    @classmethod
    def _audit_or_not(cls, audit: Any) -> Any:
        return {} if audit is True else None if audit is False else audit

    @property
    def noisy(self) -> bool:
        """Whether noise covers any of what leaves the clients."""
        return self.privacy.noise is not None or self.method.noise_of_its_own

    @property
    def hides_by_secrets(self) -> bool:
        """Whether anything is hidden by what follows from the clients' secrets: noise, an isometry key or masks."""
        return self.noisy or self.privacy.isometry_key or self.privacy.secure_aggregation

    @property
    def secure_sums(self) -> SecureSums | None:
        """What sums are to withstand; None where the server may see their summands."""
        if not self.privacy.secure_aggregation:
            return None
        # By the decimal that was written: of 0.8, 0.2 are left.
        return SecureSums(self.privacy.colluding, float(1 - Fraction(repr(self.runtime.quorum))))

    @property
    def robust_rule(self) -> RobustRule | None:
        """What looks at each client's upload; None where the method takes sums and means alone."""
        rule = getattr(self.method, "aggregation", None)
        return rule if isinstance(rule, RobustRule) else None

    @property
    def coverage(self) -> Coverage | None:
        """The mechanism as clients are told it, and who applies it."""
        noise = self.privacy.noise
        if noise is None:
            return None
        return self.privacy.coverage(self.method.releases(noise))

    def require_columns(self, mapped: Sequence[str]) -> None:
        """Raise ScenarioError where the scenario shows a column that is not mapped, or one twice."""
        for column in self.show:
            if column not in mapped:
                raise ScenarioError(
                    f"show names the column {column!r}, which is not mapped{did_you_mean(column, mapped)}. Mapped are"
                    f" {listing(mapped)}: correct the name, or leave it out."
                )
            if self.show.count(column) > 1:
                raise ScenarioError(f"show names the column {column!r} twice: leave one out.")

    def require_clients(self, count: int) -> None:
        """Raise ScenarioError where the scenario does not fit so many clients."""
        absent = sorted({crash.client for crash in self.faults.crashes if crash.client >= count})
        if absent:
            raise ScenarioError(
                f"faults.crashes names client {absent[0]}, and there are {count} clients, counted from 0: choose at"
                f" most {count - 1}."
            )
        liars = self.faults.adversary
        if liars is not None and not attackers(self.seed, count, liars.fraction):
            raise ScenarioError(
                f"faults.adversary.fraction is {liars.fraction:g}, which of {count} clients is none, so nobody would"
                f" lie: choose at least {1 / count:.2g}, or leave faults.adversary out."
            )
        coverage = self.coverage
        if coverage is not None:
            coverage.count(count)
        taking_part = max(1, round(self.clients.participation * count))
        if self.robust_rule is not None:
            self.robust_rule.require(taking_part)
        if self.secure_sums is not None:
            degrees(taking_part, self.secure_sums.colluding, self.secure_sums.dropping)
