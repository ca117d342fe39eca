"""Charged releases as they are written down: a line before each is asked for, and another once it is answered.

What has been asked for may have been seen, whatever becomes of the run. So a run that goes on from a checkpoint, or
from its start, counts all that any of its starts released.
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
        Digest of what was asked, of whom and in which round. The same name is the same release, if the answer is.
    charge : Charge
        What it costs.
    answer : str
        Digest of what came; empty before.
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
        """Read a line.

        Raises
        ------
        RunError
            If it is not as it was written.
        """
        try:
            content: dict[str, Any] = json.loads(line)
            described = content["charge"]
            mechanism = described["mechanism"]
            charge = Charge(**described | {"mechanism": mechanism and mechanism_of(mechanism)})
            return cls(content["name"], charge, content["answer"])
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"the releases that were written down are damaged, at {line.strip()!r}") from error


def by_name(lines: Iterable[str]) -> dict[str, Released]:
    """Releases by name; of several lines about one, the last counts."""
    return {release.name: release for release in map(Released.of, lines)}
