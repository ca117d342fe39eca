"""The first script of a job, before raydr starts: checks the Python and the packages of its node.

It is sent with the job. Python 3.8 must be able to parse it, so that the user sees the reason and not a syntax error.
"""

from __future__ import annotations

import json
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version

OLDEST = (3, 11)
_UNUSABLE = 2


def lacking(requirements: list[str]) -> list[str]:
    """Return the requirements that are missing here or have a wrong version, each as a clause."""
    from packaging.requirements import Requirement

    found = []
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            there = version(requirement.name)
        except PackageNotFoundError:
            found.append(requirement.name + " is not installed")
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            found.append(f"{requirement.name} is {there}, not {requirement.specifier}")
    return found


def wrong(requirements: list[str], ray: str) -> str | None:
    """Return what is wrong with this Python in one paragraph, or None."""
    here = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST:
        return (
            "The cluster's head runs Python "
            + here
            + " ("
            + sys.executable
            + "), and raydr needs "
            + ".".join(map(str, OLDEST))
            + " or newer. Start the head from an environment that has it."
        )
    try:
        found = version("ray")
    except PackageNotFoundError:
        found = "not installed"
    if found != ray:
        return (
            "A job runs the first `python` in the head's PATH, and its Ray is " + found + ", not the head's "
            + ray + " (" + sys.executable + "). Start the head with the folder of its own Python first in PATH."
        )  # fmt: skip
    lack = lacking(requirements)
    if lack:
        return (
            "The environment of the cluster's head cannot run raydr: " + "; ".join(lack) + ". Install"
            " raydr's dependencies there and on every other node (`pip install -c constraints.txt '.[cluster]'` in"
            " raydr's folder). raydr itself comes with the job."
        )  # fmt: skip
    return None


def main() -> None:
    """Check the environment, then start raydr."""
    with open("submission.json", encoding="utf-8") as file:
        submission = json.load(file)
    reason = wrong(submission["requirements"], submission["versions"]["ray"])
    if reason is not None:
        print(json.dumps({"raydr": "Failed", "text": reason, "code": _UNUSABLE}), flush=True)
        sys.exit(_UNUSABLE)
    runpy.run_module("raydr.front.remote", run_name="__main__")


if __name__ == "__main__":
    main()
