"""The cost of a whole run, rehearsed before it starts, for sites that limit all their runs together."""

from __future__ import annotations

import numpy as np

from raydr.arrays import FloatArray
from raydr.errors import RaydrError
from raydr.federation.rehearsal import RehearsalClients
from raydr.methods.serving import Plan, rehearse
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.site_policies import policies_of
from raydr.sparse_rows import SparseRows

SAMPLED_NUMBERS = 4_000_000
"""Maximum count of numbers in a table that is used completely; larger tables are sampled to this size."""


def declared_cost(
    plan: Plan, client_data: ClientData, reserve: FloatArray | None
) -> tuple[tuple[float, float], ...]:
    """Return what all releases of a run cost each client, as :class:`raydr.federation.enrolment.Enrol` declares it.

    Nothing is declared if no site has a budget for all runs, or if the rehearsal of the run ends early. Then sites
    check each release alone.
    """
    policies = policies_of(client_data)
    if not any(policy.epsilon_in_all for site in policies for policy in site.policies):
        return ()
    if plan.harmonize is not None or plan.target is not None:
        return ()
    clients = RehearsalClients(
        sizes=tuple(np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()),
        sample=sampled(client_data.pooled(), plan.seed),
        homes=[(client,) for client in range(len(client_data.names))],
        seed=plan.seed,
        reserve=reserve,
        policies=policies,
    )
    try:
        rehearsed = rehearse(clients, plan)
    except RaydrError:
        return ()  # the run ends with the same error
    return clients.cost if rehearsed.whole and rehearsed.failure is None else ()


def sampled(rows: FloatArray, seed: int) -> FloatArray:
    """Return all rows of a small table; of a large one a sample and two rows with each feature's extremes.

    The two rows keep the ranges that messages declare. Their effect on means of thousands of rows is negligible.
    """
    if rows.size <= SAMPLED_NUMBERS:
        return np.asarray(rows)
    chosen = np.random.default_rng(seed).choice(
        len(rows), SAMPLED_NUMBERS // rows.shape[1] + 1, replace=False
    )
    if isinstance(rows, SparseRows):
        extremes = rows.min(), rows.max()
    else:
        extremes = np.fmin.reduce(rows), np.fmax.reduce(rows)
    return np.concatenate([rows[np.sort(chosen)], *(each[None] for each in extremes)])
