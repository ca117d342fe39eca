"""Section ``audit`` of a scenario: attacks on the run's own messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from raydr.settings import Settings


class AuditSettings(Settings):
    """Attacks on the run's own messages: what an honest but curious server recovers."""

    attacks: tuple[str, ...] | None = Field(
        None, description="names of attacks, raydr list attacks; default: all that apply"
    )
    public_rows: int = Field(
        10_000,
        ge=0,
        description="rows of like data that the server is given, at most: rows of the source that are not mapped, or,"
        " where all are, a fifth of those that are",
    )
    known_records: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None,
        description="how many records of the run the server knows; default: 0, 1, 5, 20 and features + 1",
    )

    @field_validator("attacks")
    @classmethod
    def _attacks_that_there_are(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from raydr.attacks import ATTACKS

        for name in names or ():
            if name not in ATTACKS:
                raise ValueError(f"there is no attack {name!r}: choose among {', '.join(ATTACKS)}")
        return names
