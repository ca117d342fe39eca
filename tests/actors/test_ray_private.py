"""The private parts of Ray that raydr uses are in one module, which refuses releases that it was not tested with."""

from __future__ import annotations

import re
import tomllib

import pytest
import ray
from places import ROOT

from raydr.actors import ray_private
from raydr.errors import RunError


def test_no_other_module_uses_a_private_part_of_ray() -> None:
    found = {
        str(path.resolve().relative_to(ROOT))
        for room in ("raydr", "actors", "scenarios", "tune")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"\bray\._[a-z]|dashboard_sdk|_ray_version", path.read_text())
    }
    assert found == {"actors/ray_private.py"}


def test_the_bounds_on_ray_match_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = ">={},<{}".format(
        *(".".join(map(str, each)) for each in (ray_private._OLDEST, ray_private._NEXT))
    )
    assert f"ray[tune]{bounds}" in project["dependencies"]
    assert project["optional-dependencies"]["cluster"] == [f"ray[default]{bounds}"]


@pytest.mark.parametrize(
    ("release", "is_tested"), [("2.55.1", True), ("2.54.9", False), ("2.56.0", False), ("3.0.0.dev0", False)]
)
def test_other_releases_of_ray_are_refused(
    monkeypatch: pytest.MonkeyPatch, release: str, is_tested: bool
) -> None:
    monkeypatch.setattr(ray, "__version__", release)
    if is_tested:
        ray_private.require_tested_ray()
    else:
        with pytest.raises(
            RunError, match=rf"does not support Ray {release}: .*pip install 'ray\[tune\]>=2.55,<2.56'"
        ):
            ray_private.require_tested_ray()
