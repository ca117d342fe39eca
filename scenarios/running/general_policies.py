"""The policies that hold at all sites of a run."""

from __future__ import annotations

from collections.abc import Sequence

from raydr.data.survey.spelling import Threshold
from raydr.privacy.policy import Policy, SitePolicy
from raydr.privacy.policy_file import read_policy
from raydr.scenarios.schema.scenario import Scenario


def general_policies(scenario: Scenario) -> tuple[Policy, ...]:
    """Return the policies that hold at all sites: that of ``clients.policy``, or the default of a private run.

    Raises
    ------
    ScenarioError
        If the file cannot be used.
    """
    if scenario.clients.policy is not None:
        return (read_policy(scenario.clients.policy),)
    if scenario.privacy.strict is True:
        budget = scenario.privacy.budget
        private = Policy.of_profile("private")
        return (private.model_copy(update={"epsilon": budget.epsilon_max, "delta": budget.delta}),)
    return ()


def stricter_threshold(threshold: Threshold, policies: Sequence[Policy]) -> Threshold:
    """Return how many rows and sites must have a word, by the scenario and the policies."""
    site = SitePolicy(tuple(policies))
    return Threshold(max(threshold.rows, site.least_count), max(threshold.sites, site.least_sites))
