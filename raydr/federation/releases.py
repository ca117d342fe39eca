"""The record of charged releases: one line before each is requested, and another after it is answered.

A request may have been answered and seen even if the run stops afterwards. So a run that continues from a checkpoint,
or starts again, counts the releases of all its starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from raydr.errors import RunError
from raydr.privacy.accounting import Charge
from raydr.privacy.mechanism import mechanism_of


@dataclass(frozen=True)
class Released:
    """One release.

    Attributes
    ----------
    name : str
        Digest of the request, the clients asked and the round. Releases with the same name and answer are the same
        release.
    charge : Charge
        Its cost.
    answer : str
        Digest of the answer; empty before it arrived.
    """

    name: str
    charge: Charge
    answer: str = ""

    @property
    def line(self) -> str:
        """The release as a line of a file."""
        charge = self.charge
        described = vars(charge) | {
            "mechanism": charge.mechanism and charge.mechanism.model_dump(mode="json")
        }
        return json.dumps({"name": self.name, "charge": described, "answer": self.answer}) + "\n"

    @classmethod
    def of(cls, line: str) -> Released:
        """Parse a line.

        Raises
        ------
        RunError
            If the line is damaged.
        """
        try:
            content: dict[str, Any] = json.loads(line)
            described = content["charge"]
            mechanism = described["mechanism"]
            charge = Charge(**described | {"mechanism": mechanism and mechanism_of(mechanism)})
            return cls(content["name"], charge, content["answer"])
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"the record of charged releases is damaged at {line.strip()!r}") from error


def by_name(lines: Iterable[str]) -> dict[str, Released]:
    """Return releases by name; of several lines for one release, the last counts."""
    return {release.name: release for release in map(Released.of, lines)}
