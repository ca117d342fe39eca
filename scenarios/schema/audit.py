"""Section ``audit`` of a scenario: attacks on the run's own messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from raydr.settings import Settings


class AuditSettings(Settings):
    """Attacks on the run's own messages by an honest but curious server."""

    attacks: tuple[str, ...] | None = Field(
        None, description="names of attacks: raydr list attacks; default: all that apply"
    )
    public_rows: int = Field(
        10_000,
        ge=0,
        description="maximum number of similar rows that the server knows: rows of the source that are not mapped, or a"
        " fifth of the mapped rows if all are mapped",
    )
    known_records: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None,
        description="numbers of records of the run that the server knows; default: 0, 1, 5, 20 and features + 1",
    )

    @field_validator("attacks")
    @classmethod
    def _attacks_that_there_are(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from raydr.attacks import ATTACKS

        for name in names or ():
            if name not in ATTACKS:
                raise ValueError(f"there is no attack {name!r}: choose among {', '.join(ATTACKS)}")
        return names
