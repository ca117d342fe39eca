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


def digest() -> str:
    """Return the digest of all requirements of raydr and its extras, and of the pinned versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [project["requires-python"], project["dependencies"], project["optional-dependencies"]]
    pinned = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    return hashlib.sha256(json.dumps([asked, pinned]).encode()).hexdigest()[:16]


def main() -> None:
    """Write the digest of today into the pins' first line."""
    first, _, rest = PINS.read_text().partition("\n")
    assert first.startswith("#")
    PINS.write_text(f"{HEAD}{digest()}\n{rest}")


if __name__ == "__main__":
    main()
