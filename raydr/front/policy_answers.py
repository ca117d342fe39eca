"""The answers of sites' policies to a planned run, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raydr.plain import listed

if TYPE_CHECKING:
    from raydr.scenarios.planning.plan import PlannedPolicy

_NAMED = 5
"""Maximum number of sites that a line names."""


def answers_of_policies(planned: Sequence[PlannedPolicy]) -> Iterator[str]:
    """Yield one line for all sites with the same policy and answer, and one for each rule that does not allow the run.

    The sentence about a rule names the first of these sites.
    """
    groups: dict[tuple[object, ...], list[PlannedPolicy]] = {}
    for each in planned:
        refusals = tuple(sentence.replace(repr(each.site), "") for sentence in each.refusals)
        groups.setdefault((each.policy, each.rules, refusals, each.counts), []).append(each)
    for alike in groups.values():
        first = alike[0]
        names = listed([repr(each.site) for each in alike], _NAMED)
        answer = "yes" if first.allowed else "no"
        if first.allowed and first.counts:
            answer += f", if {', '.join(first.counts)} counts no fewer records than the policy allows"
        yield f"site{'s' if len(alike) > 1 else ''} {names}, policy {first.policy}: {answer}"
        yield from (f"{sentence}." for sentence in first.refusals)
