"""The record that the whole fast suite passed with the oldest versions that pyproject.toml allows.

``make lowest`` runs that suite and then ``python tests/support/lowest_bounds.py``, which writes the digest of the
requirements and of the pinned versions into the first line of constraints-lowest.txt. A test of ``make test`` compares
it: a changed bound fails until the suite has passed with it.
"""

from __future__ import annotations

import hashlib
import json
import tomllib

from places import ROOT

PINS = ROOT / "constraints-lowest.txt"
HEAD = "# The oldest versions that raydr works with, tested by `make lowest` for requirements and pins with digest "


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = ("all", "dev", "docs", "flower", "mutation")
"""Extras that are not for users of raydr, or that only join others."""


def requirements() -> list[str]:
    """Return what raydr requires, with the extras for its users."""
    extras = PROJECT["optional-dependencies"].items()
    return [
        *PROJECT["dependencies"],
        *(line for name, lines in extras if name not in TOOLS for line in lines),
    ]


def digest() -> str:
    """Return the digest of the requirements and of the pinned versions."""
    pinned = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    asked = [PROJECT["requires-python"], requirements(), pinned]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def main() -> None:
    """Write the digest of today into the pins' first line."""
    first, _, rest = PINS.read_text().partition("\n")
    assert first.startswith("#")
    PINS.write_text(f"{HEAD}{digest()}\n{rest}")


if __name__ == "__main__":
    main()
