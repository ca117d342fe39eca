"""Every example in a docstring gives the result that it shows."""

import doctest
import importlib
from pathlib import Path

import pytest

import raydr

ROOT = Path(raydr.__file__).parent
FOLDERS = {ROOT: "raydr"} | {
    ROOT / name: f"raydr.{name}" for name in ("actors", "scenarios", "tune")
}  # links, which a search of ROOT does not follow


def modules_with_examples():
    for folder, package in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            if "    >>> " in path.read_text("utf-8") or "\n>>> " in path.read_text("utf-8"):
                parts = path.relative_to(folder).with_suffix("").parts
                yield ".".join((package, *(part for part in parts if part != "__init__")))


@pytest.mark.parametrize("name", sorted(set(modules_with_examples())))
def test_examples_of_a_module(name):
    module = importlib.import_module(name)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = [test for test in doctest.DocTestFinder().find(module, name) if test.examples]
    assert found, f"no example of {name} is in a docstring"
    for test in found:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
