"""Spending of sites over all runs, by their own records, for the terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from raydr.errors import ScenarioError
from raydr.plain import short_number
from raydr.privacy.policy import SITE
from raydr.privacy.policy_file import read_policy
from raydr.privacy.site_budget import SiteBudget, Stored, squares_of


@dataclass(frozen=True)
class RunReleases:
    """The releases of one run: its epsilon, and that of all runs up to it; infinite without a guarantee."""

    run: str
    asked_by: str
    charged_at: str
    count: int
    epsilon: float
    so_far: float


@dataclass(frozen=True)
class SiteSpending:
    """A site's record, checked, and what it allows."""

    budget: SiteBudget
    releases: tuple[Stored, ...]

    @property
    def spent(self) -> float:
        """Epsilon of all releases."""
        return self.budget.allowance.spent(squares_of(each.release for each in self.releases))

    @property
    def left(self) -> float | None:
        """Largest epsilon of one more run; None without a limit."""
        return self.budget.allowance.left(squares_of(each.release for each in self.releases))

    def runs(self) -> Iterator[RunReleases]:
        """Yield the runs in the order of their first release."""
        allowance = self.budget.allowance
        by_run: dict[str, list[Stored]] = {}
        for stored in self.releases:
            by_run.setdefault(stored.release.run, []).append(stored)
        before: list[Stored] = []
        for run, own in by_run.items():
            before += own
            yield RunReleases(
                run,
                own[0].release.asked_by,
                own[0].charged_at,
                len(own),
                allowance.spent(squares_of(each.release for each in own)),
                allowance.spent(squares_of(each.release for each in before)),
            )

    @property
    def words(self) -> str:
        """One or two sentences on the epsilon that is spent, and what is left."""
        allowance, runs = self.budget.allowance, len({each.release.run for each in self.releases})
        limit = f" of {allowance.epsilon:g}" if allowance.epsilon is not None else ""
        spent = "no epsilon, because a release has no guarantee" if math.isinf(self.spent) else ""
        spent = spent or f"epsilon {self.spent:.4g}{limit} at delta {short_number(allowance.delta)}"
        count = (
            f"{len(self.releases)} release{'s' * (len(self.releases) != 1)} in {runs} run{'s' * (runs != 1)}"
        )
        left = f" One more run may cost epsilon {self.left:.4g}." if self.left is not None else ""
        return f"{self.budget.site}: {count} cost {spent}.{left}"

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON; None for infinity."""
        allowance = self.budget.allowance
        return {
            "site": self.budget.site,
            "record": str(self.budget.path),
            "epsilon": _finite(self.spent),
            "epsilon_in_all": allowance.epsilon,
            "left": self.left,
            "delta": allowance.delta,
            "releases": [
                {"number": each.number, "charged_at": each.charged_at}
                | {name: _finite(value) for name, value in asdict(each.release).items()}
                for each in self.releases
            ],
        }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def spending_of(source: str) -> list[SiteSpending]:
    """Return the records of the policy in a file; several if its ``releases`` has a file for each site.

    Raises
    ------
    ScenarioError
        If the policy cannot be read, or keeps no record.
    RunError, OutputError
        If a record was changed or cannot be read.
    """
    policy = read_policy(source)
    if policy.releases is None:
        raise ScenarioError(
            f"The policy {source} keeps no record of releases: name a file in it, such as `releases:"
            " releases.sqlite`. Runs before that are not in it."
        )
    path = Path(policy.releases)
    start, found, end = path.name.partition(SITE)
    names = [Path(source).stem]
    if found:
        files = sorted(path.parent.glob(f"{escape(start)}*{escape(end)}"))
        names = [unquote(file.name[len(start) : len(file.name) - len(end)]) for file in files]
    budgets = [budget for name in names if (budget := policy.budget_of(name)) is not None]
    return [SiteSpending(budget, tuple(budget.releases())) for budget in budgets]


def together(sites: Sequence[SiteSpending]) -> str | None:
    """Return what several sites cost together; None for one site."""
    if len(sites) < 2:
        return None
    largest = max(sites, key=lambda site: site.spent)
    epsilon = "no epsilon" if math.isinf(largest.spent) else f"epsilon {largest.spent:.4g}"
    return (
        f"All sites together cost {epsilon}, the cost at {largest.budget.site}: a record is at one site only. If a"
        " person has records at several sites, add up the costs there."
    )
