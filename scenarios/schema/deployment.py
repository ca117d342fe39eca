"""Settings that a deployed run refuses, because only a simulation sees all rows."""

from __future__ import annotations

from collections.abc import Iterator

from raydr.scenarios.schema.sections import Sections


def problems_of_deployment(scenario: Sections) -> Iterator[str]:
    """Yield what a deployed run cannot do, each with the remedy."""
    data, privacy = scenario.data, scenario.privacy
    if scenario.compare:
        yield "compare maps pooled rows, and a deployed run pools none: leave compare out"
    if scenario.named_metrics:
        yield (
            f"metrics names {scenario.named_metrics[0]}, which needs pooled rows: leave metrics out, and set"
            " fidelity_rows to estimate npa_10, trustworthiness and continuity without pooling"
        )
    if scenario.audit is not None:
        yield "audit compares attacks with the true rows, which no one has: audit a simulation, and leave audit out"
    if scenario.evaluate_every:
        yield "evaluate_every scores maps with pooled rows: leave evaluate_every out"
    if scenario.show:
        yield "show copies values of rows into the run folder: leave show out"
    if data.holdout is not None:
        yield (
            "data.holdout draws rows of all sites: leave it out. Each site gets the model, and places new rows with it"
        )
    if scenario.prior is not None:
        yield (
            "prior finds the places of an earlier run's rows by their identities, which stay at the sites: leave prior"
            " out"
        )
    if privacy.isometry_key:
        yield "privacy.isometry_key needs a person who may read the scaling of all rows: leave it out"
    if privacy.secret is not None:
        yield "privacy.secret is one file for all clients, and each site draws its own: leave privacy.secret out"
    if scenario.clients.policy is not None:
        yield "clients.policy is for a simulation, and each site has its own policy in site.yaml: leave it out"
    if scenario.faults != type(scenario.faults)():
        yield "faults simulates failures: leave faults out"
    if scenario.runtime.batch_clients:
        yield "runtime.batch_clients computes for several clients at once: leave it out"
