"""Section ``privacy`` of a scenario: what is to protect the messages."""

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
    """A mechanism, and who applies it, which no client is told."""

    clients: float = Field(1.0, gt=0, le=1, description="part of the clients that add it, drawn by the seed")


def _section(mechanism: type[Settings]) -> type[Settings]:
    """Section of a scenario for a mechanism; ExtensionError if it has a key of the section's own."""
    if "clients" in mechanism.model_fields:
        raise ExtensionError(
            f"The mechanism {kind_of(mechanism)!r} has a key `clients`, which privacy.noise has for every mechanism:"
            " rename it."
        )
    name, bases = f"{mechanism.__name__}Settings", (NoiseSettings, mechanism)
    return create_model(name, __base__=bases, __doc__=mechanism.__doc__, __module__=__name__)


if TYPE_CHECKING:
    AnyNoise: TypeAlias = NoiseSettings
else:
    MECHANISMS.close()
    _SECTIONS = tuple(_section(mechanism) for mechanism in MECHANISMS.values())
    globals().update({section.__name__: section for section in _SECTIONS})  # found there when it is unpickled
    AnyNoise = one_of(_SECTIONS)


class PrivacySettings(Settings):
    """What is to protect the messages."""

    noise: AnyNoise | None = Field(None, description="noise that clients add, where the method offers it")

    @field_validator("noise", mode="wrap")
    @classmethod
    def _of_the_usual_kind(cls, noise: Any, checked: ValidatorFunctionWrapHandler) -> Any:
        """The kind need not be written where it is the default, and noise of level 0 is none."""
        if not isinstance(noise, Mapping):
            return checked(noise)
        content = {"kind": kind_of(GaussianNoise), **noise}
        if type(content.get("level")) in (int, float) and content["level"] == 0:
            checked(content | {"level": 1.0})  # all else must be right
            return None
        return checked(content)

    secret: SecretPath | None = Field(
        None,
        description="file with at least 32 secret bytes, from which clients' keys, masks and noise follow, and so a run"
        " that can be repeated to the bit, unless it may lose clients (runtime.quorum); default: drawn from the system,"
        " with new noise in each run. The server does not have it",
    )
    isometry_key: bool = Field(
        False,
        description="turn and shift all records by an isometry that clients agree on and the server does not know: the"
        " same map, and known anchors stop helping. Obfuscation, not protection: raydr audit shows how far it goes",
    )
    secure_aggregation: bool = Field(
        False,
        description="hide each client's summand from the server, which learns sums alone: pairwise masks (Bell et al."
        " 2020) that come off the total; needs 3 clients in each sum",
    )
    colluding: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="part of the clients in a sum that may tell the server all they know without weakening"
        " secure_aggregation: noise of per: sum is enough without their shares, and without one client's",
    )

    delta: Delta = Field(1e-5, description="at which epsilon is told: below 1 / rows, and less than 0.1")
    epsilon_max: float | None = Field(
        None,
        gt=0,
        description="what all releases may come to together: a run that would pass it is refused or stopped",
    )
    strict: bool | Literal["sums"] = Field(
        False,
        description="whether nothing may leave a client that no noise with a claim covers: nothing at all, or no sum",
    )

    @model_validator(mode="after")
    def _budget_that_binds(self) -> PrivacySettings:
        if self.epsilon_max is not None and not self.strict:
            raise ValueError(
                "epsilon_max bounds what the accountant charges, and a release that no noise covers has no epsilon:"
                " set strict to true, or to sums where what is posted of each record is not meant"
            )
        if self.strict and self.noise is not None and self.noise.by_level:
            raise ValueError(
                "strict needs noise that claims something, and a level depends on the data: give noise.epsilon,"
                " noise.multiplier or noise.sigma"
            )
        return self

    @property
    def budget(self) -> Budget:
        """What the run may cost."""
        return Budget(self.delta, self.epsilon_max, self.strict, self.colluding)

    def coverage(self, releases: float) -> Coverage | None:
        """The mechanism as clients are told it, fit for so many releases, and who applies it."""
        if self.noise is None:
            return None
        mechanism = mechanism_of(self.noise.model_dump(exclude={"clients"}))
        return Coverage(mechanism.calibrated(releases, self.delta), self.noise.clients)
