"""Section ``privacy`` of a scenario: protection of the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, ValidatorFunctionWrapHandler, create_model, field_validator, model_validator

from raydr.privacy.accounting import Budget
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import MECHANISMS, Coverage, Delta, Mechanism, mechanism_of
from raydr.registry import ExtensionError, kind_of, one_of
from raydr.settings import SecretPath, Settings


class NoiseSettings(Mechanism):
    """A noise mechanism and the fraction of the clients that applies it; clients do not learn the fraction."""

    clients: float = Field(
        1.0, gt=0, le=1, description="fraction of the clients that add it, drawn with the seed"
    )


def _section(mechanism: type[Settings]) -> type[Settings]:
    """Make the section of a scenario for a mechanism; raise ExtensionError if it has a key `clients`."""
    if "clients" in mechanism.model_fields:
        raise ExtensionError(
            f"The mechanism {kind_of(mechanism)!r} has a key `clients`, which privacy.noise has for all mechanisms:"
            " rename the key."
        )
    name, bases = f"{mechanism.__name__}Settings", (NoiseSettings, mechanism)
    return create_model(name, __base__=bases, __doc__=mechanism.__doc__, __module__=__name__)


if TYPE_CHECKING:
    AnyNoise: TypeAlias = NoiseSettings
else:
    MECHANISMS.close()
    _SECTIONS = tuple(_section(mechanism) for mechanism in MECHANISMS.values())
    globals().update({section.__name__: section for section in _SECTIONS})  # pickle looks them up here
    AnyNoise = one_of(_SECTIONS)


class PrivacySettings(Settings):
    """Protection of the messages."""

    noise: AnyNoise | None = Field(None, description="noise that clients add, if the method offers it")

    @field_validator("noise", mode="wrap")
    @classmethod
    def _of_the_usual_kind(cls, noise: Any, checked: ValidatorFunctionWrapHandler) -> Any:
        """Fill in the default kind, and turn noise of level 0 into None."""
        if not isinstance(noise, Mapping):
            return checked(noise)
        content = {"kind": kind_of(GaussianNoise), **noise}
        if type(content.get("level")) in (int, float) and content["level"] == 0:
            checked(content | {"level": 1.0})  # still validate the other keys
            return None
        return checked(content)

    secret: SecretPath | None = Field(
        None,
        description="file with at least 32 secret bytes. Clients derive keys, masks and noise from it, so a run can be"
        " repeated bit for bit, unless it may lose clients (runtime.quorum). Default: the system's random source, with"
        " new noise in each run. The server does not have the secret",
    )
    isometry_key: bool = Field(
        False,
        description="rotate and shift all records by an isometry that the clients share and the server does not know."
        " The map is the same, and known anchors stop helping an attacker. Obfuscation, not protection: raydr audit"
        " shows how much it helps",
    )
    secure_aggregation: bool = Field(
        False,
        description="hide each client's summand from the server, which learns only sums: pairwise masks (Bell et al."
        " 2020) that cancel in the total. Needs 3 clients in each sum",
    )
    colluding: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="fraction of the clients in a sum that may share all they know with the server without weakening"
        " secure_aggregation. Noise with per: sum is enough without their shares, and without one client's",
    )

    delta: Delta = Field(1e-5, description="delta of the reported epsilon: below 1 / rows, and less than 0.1")
    epsilon_max: float | None = Field(
        None,
        gt=0,
        description="budget: a run whose releases would exceed this epsilon together is refused or stopped",
    )
    strict: bool | Literal["sums"] = Field(
        False,
        description="true: noise with a guarantee must cover every message; sums: it must cover every sum",
    )

    @model_validator(mode="after")
    def _budget_that_binds(self) -> PrivacySettings:
        if self.epsilon_max is not None and not self.strict:
            raise ValueError(
                "epsilon_max limits what the accountant charges, and a release without noise has no epsilon: set strict"
                " to true, or to sums if messages about single records may have none"
            )
        if self.strict and self.noise is not None and self.noise.by_level:
            raise ValueError(
                "strict needs noise with a guarantee, and a level depends on the data: give noise.epsilon,"
                " noise.multiplier or noise.sigma"
            )
        return self

    @property
    def budget(self) -> Budget:
        """The run's privacy budget."""
        return Budget(self.delta, self.epsilon_max, self.strict, self.colluding)

    def coverage(self, releases: float) -> Coverage | None:
        """Return the mechanism calibrated for this number of releases, and the fraction of clients that applies it."""
        if self.noise is None:
            return None
        mechanism = mechanism_of(self.noise.model_dump(exclude={"clients"}))
        return Coverage(mechanism.calibrated(releases, self.delta), self.noise.clients)
