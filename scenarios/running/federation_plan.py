"""The federation's plan for a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raydr.arrays import Float64Array, FloatArray
from raydr.data.survey.layout import JointColumns, Layout
from raydr.data.survey.raw_cells import RawColumn, raw_columns
from raydr.federation import FailurePolicy, FaultPlan, Liars
from raydr.federation.network import Network
from raydr.federation.simulated.faults import Faults
from raydr.methods.serving import Plan, Served
from raydr.privacy.secrets import RootedRun
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.prior import prior_of
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.dissimilarity import Transformation
from raydr.statistics.harmonizing import Harmonizing
from raydr.statistics.keying import keyed_metric, opened
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import NOTHING_JOINT
from raydr.statistics.steering import Target


def plan_of(
    scenario: Scenario,
    clients: int,
    harmonizing: Harmonizing | None = None,
    joint: JointColumns = NOTHING_JOINT,
    target: Target | None = None,
    public_targets: Float64Array | None = None,
) -> Plan:
    """Return the plan of a scenario for this number of clients.

    ``joint`` are its columns of several features; see :class:`raydr.methods.serving.Plan` for the others.
    """
    runtime, faults = scenario.runtime, scenario.faults
    liars = faults.adversary
    return Plan(
        method=scenario.method.kind,
        settings=scenario.method,
        scale=scenario.data.scale,
        metric=scenario.data.metric,
        fill=scenario.data.filling,
        joint=joint,
        harmonize=harmonizing,
        target=target,
        public_targets=public_targets,
        seed=scenario.seed,
        policy=FailurePolicy(runtime.retries, runtime.quorum),
        faults=FaultPlan(
            **{name: getattr(faults, name) for name in Faults.model_fields},
            adversary=Liars.drawn(liars, scenario.seed, clients) if liars is not None else None,
        ),
        participation=scenario.clients.participation,
        checkpoint_every=runtime.checkpoint_every,
        evaluate_every=scenario.evaluate_every,
        batch_clients=runtime.batch_clients,
        coverage=scenario.coverage,
        budget=scenario.privacy.budget,
        isometry_key=scenario.privacy.isometry_key,
        secure=scenario.secure_sums,
        signed_keys=bool(scenario.clients.deployed),
        fidelity_rows=scenario.fidelity_rows,
    )


def cells_of(scenario: Scenario, layout: Layout) -> tuple[RawColumn, ...] | None:
    """Return the columns that a noisy survey prepares; None if exact sums do."""
    return raw_columns(layout) if scenario.method.surveys_columns else None


def with_public(plan: Plan, public: FloatArray | None) -> tuple[Plan, FloatArray | None]:
    """Return the plan with the public rows; with an isometry key, the rows that clients hide from the server."""
    if plan.isometry_key:
        return replace(plan, hidden=len(public) if public is not None else 0), public
    return replace(plan, public=public), None


def plan_with_data(scenario: Scenario, data: ClientData) -> tuple[Plan, FloatArray | None]:
    """Return the plan of a scenario with its data, and the rows that :func:`with_public` keeps from the server."""
    plan = plan_of(
        scenario, len(data.names), data.harmonizing, data.layout.joint, data.target, data.public_targets
    )
    plan = replace(
        plan,
        cells=cells_of(scenario, data.layout),
        prior=prior_of(scenario, data),
        network=network_of(scenario, data.names),
    )
    return with_public(plan, data.public)


def network_of(scenario: Scenario, names: Sequence[str]) -> Network | None:
    """Return the lines of clients with these names; None if the scenario has none."""
    return scenario.network.of(names) if scenario.network is not None else None


def with_scaling(served: Served, run: RootedRun, scenario: Scenario) -> Served:
    """Return the result with the scaling that clients of a keyed run hide from the server, for the evaluation."""
    if served.sealed_scaling is None:
        return served
    known = opened(served.sealed_scaling, run.shared, run.name, keyed_metric(scenario.data.metric))
    prepared = Preparation(known.scaling, transformation=Transformation(known.metric))
    # The server knows rows only as rotated by the key, so it cannot compute positions in the features.
    return replace(served, prepared=prepared, outcome=replace(served.outcome, lift=None))
