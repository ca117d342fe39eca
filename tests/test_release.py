"""Version, changelog, citation and requirements of a release agree with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import yaml
from lowest_bounds import HEAD, PINS, PROJECT, digest, requirements
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from places import ROOT


def pins(name: str) -> Mapping[str, Version]:
    """Versions of a file of constraints."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(line.split("==")[0]): Version(line.split("==")[1]) for line in lines}


@pytest.mark.parametrize("asked", [Requirement(line) for line in requirements()], ids=str)
def test_the_lowest_version_is_tested(asked: Requirement) -> None:
    """The comment above `lowest` in the Makefile says how to renew constraints-lowest.txt."""
    (least,) = [Version(each.version) for each in asked.specifier if each.operator == ">="]
    lowest = pins("constraints-lowest.txt")[canonicalize_name(asked.name)]
    assert lowest.release[: len(least.release)] == least.release
    assert asked.specifier.contains(pins("constraints.txt")[canonicalize_name(asked.name)])


def test_the_fast_suite_passed_on_the_lowest_versions() -> None:
    """After a change of a bound, `make lowest` writes the digest."""
    assert PINS.read_text().splitlines()[0] == HEAD + digest()


def test_the_version_is_semantic_and_in_changelog_and_citation() -> None:
    version = PROJECT["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == version
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (version, PROJECT["license"])
