"""List the test functions that take more than 0.4 seconds with all their cases. ``make fast`` leaves them out.

    python -m pytest --junitxml=build/times.xml && python tests/long_tests.py build/times.xml

on a quiet machine writes tests/long_tests.txt anew.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).with_suffix(".txt")
LONGEST_S = 0.4


def listed() -> frozenset[str]:
    """Return the functions of the list, named ``file::function`` or ``file::Class::function``."""
    return frozenset(LIST.read_text().splitlines())


def measured(report: Path) -> dict[str, float]:
    """Return the seconds of each function in a report that pytest has written as JUnit XML."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        *rooms, last = case.attrib["classname"].split(".")
        names = [last] if last[0].isupper() else []
        file = "/".join(rooms if names else [*rooms, last]) + ".py"
        seconds["::".join([file, *names, case.attrib["name"].partition("[")[0]])] += float(
            case.attrib["time"]
        )
    return seconds


if __name__ == "__main__":
    found = measured(Path(sys.argv[1]))
    LIST.write_text("".join(f"{name}\n" for name in sorted(found) if found[name] > LONGEST_S))
