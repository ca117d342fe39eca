"""Estimates of what a run needs: ``raydr plan``.

Messages and their privacy cost come from a rehearsal (:func:`raydr.methods.serving.rehearse`), which sends the requests
of the run to clients that have only sizes. Memory and time come from the models in ``run_memory`` and ``run_time``. Ray
is not started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raydr.actors.capacity import Capacity, Machine, this_machine
from raydr.actors.packing import Seating, pack, seating
from raydr.federation import RehearsalClients
from raydr.federation.rehearsal import Asked
from raydr.methods.serving import Rehearsed, rehearse
from raydr.privacy.accounting import Adversary
from raydr.privacy.ledger import Granularity, Ledger
from raydr.privacy.mechanism import Relation, Unit
from raydr.privacy.statement import Against, statement
from raydr.scenarios.planning.data_sizes import DataSizes, resized, sizes_of_data
from raydr.scenarios.planning.remedies import NodeNeed, Remedy, needs_of, remedies
from raydr.scenarios.planning.run_memory import Load, ProcessMemory, footprint
from raydr.scenarios.planning.run_time import StageTime, stage_times
from raydr.scenarios.running.federation_plan import network_of, plan_of, with_public
from raydr.scenarios.schema.scenario import Scenario


@dataclass(kw_only=True, frozen=True)
class PlannedMessages:
    """All messages of one kind in one direction, as in ledger.json.

    Attributes
    ----------
    kind, what, direction, granularity : str
        As in the ledger.
    count, bytes : int
        Totals over all clients.
    epsilon : float or None
        Epsilon of these messages.
    assumed : str
        Why the bytes are an estimate; empty if they are exact.
    """

    kind: str
    what: str
    direction: str
    granularity: str
    count: int
    bytes: int
    epsilon: float | None
    assumed: str = ""


@dataclass(kw_only=True, frozen=True)
class PlannedPrivacy:
    """Estimated privacy cost.

    Attributes
    ----------
    epsilon : float or None
        Epsilon of the whole run; None if infinite or unknown.
    accounted : float or None
        Epsilon of all releases under noise with a guarantee; None if there are none.
    delta : float
        Delta of both.
    infinite : tuple of str
        Why the whole run has no epsilon.
    known : bool
        Whether the method's own releases are included.
    unit : {"record", "client"} or None
        What the charged releases hide; None if there are none.
    relation : {"zero-out", "replace-one"} or None
        Relation between neighbouring data sets.
    by_adversary : mapping of name to Against
        As in privacy.json.
    notices : tuple of str
        Limits of the guarantee.
    """

    epsilon: float | None
    accounted: float | None
    delta: float
    infinite: tuple[str, ...]
    known: bool
    unit: Unit | None
    relation: Relation | None
    by_adversary: Mapping[Adversary, Against]
    notices: tuple[str, ...]


@dataclass(kw_only=True, frozen=True)
class PlannedPolicy:
    """The answer of one site's policy to the run.

    Attributes
    ----------
    site, policy : str
        Names of the site and of its policy.
    rules : tuple of str
        Rules that restrict something.
    allowed : bool
        Whether the policy allows everything that a plan knows of the run.
    refusals : tuple of str
        One sentence for each rule that does not.
    counts : tuple of str
        Messages that the site sends only if none of their numbers of records is too small.
    """

    site: str
    policy: str
    rules: tuple[str, ...]
    allowed: bool
    refusals: tuple[str, ...]
    counts: tuple[str, ...]


@dataclass(kw_only=True, frozen=True)
class RunPlan:
    """The needs of a run.

    Attributes
    ----------
    scenario, method : str
        Names of the scenario and the method.
    rows, features, clients : int
        Sizes of the data; 0 rows and features if unknown.
    smallest, largest : int
        Fewest and most rows of a client.
    held_out : int
        Rows that no client gets.
    federation : str
        "ray" or "inline".
    actors : int
        Number of client actors; 0 inline.
    seating : str
        How clients are assigned to actors, and why.
    rounds : int
        Rounds with requests to clients, or with work at the server.
    messages : tuple of PlannedMessages
        Messages in the ledger's order.
    bytes_up, bytes_down : int
        Totals of all messages.
    privacy : PlannedPrivacy
        Privacy cost of the messages.
    memory : tuple of ProcessMemory
        Peak memory of each kind of process.
    nodes : tuple of NodeNeed
        Needed and available memory of each machine.
    remedies : tuple of Remedy
        Changes, each of which makes the run fit; empty if it fits, or if none does.
    stages : tuple of StageTime
        Approximate seconds.
    notes : tuple of str
        Assumptions, unknown facts, and reasons why the run would fail.
    policies : tuple of PlannedPolicy
        Answer of each site that has a policy.
    network_seconds : float or None
        Seconds of all messages on the lines of ``network``, in addition to ``stages``; None without lines.
    """

    scenario: str
    method: str
    rows: int
    features: int
    clients: int
    smallest: int
    largest: int
    held_out: int
    federation: str
    actors: int
    seating: str
    rounds: int
    messages: tuple[PlannedMessages, ...]
    bytes_up: int
    bytes_down: int
    privacy: PlannedPrivacy | None
    memory: tuple[ProcessMemory, ...]
    nodes: tuple[NodeNeed, ...]
    remedies: tuple[Remedy, ...]
    stages: tuple[StageTime, ...]
    notes: tuple[str, ...]
    policies: tuple[PlannedPolicy, ...] = ()
    network_seconds: float | None = None

    @property
    def fits(self) -> bool:
        """Whether every machine has enough memory."""
        return all(node.fits for node in self.nodes)

    @property
    def seconds(self) -> float:
        """Seconds of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        nodes = [asdict(node) | {"fits": node.fits} for node in self.nodes]
        return asdict(self) | {"nodes": nodes, "fits": self.fits, "seconds": self.seconds}


def plan_of_scenario(
    scenario: Scenario,
    *,
    capacity: Capacity | None = None,
    data_dir: Path | None = None,
    rows: int | None = None,
) -> RunPlan:
    """Plan one scenario.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    capacity : Capacity, optional
        Available machines. Default: this machine with its free memory.
    data_dir : Path, optional
        Folder of built-in data sets.
    rows : int, optional
        Plan for this many rows of the same kind.

    Raises
    ------
    ScenarioError, DataError
        If the run would be refused.
    """
    data = sizes_of_data(scenario, data_dir)
    if rows is not None:
        data = resized(data, rows)
        scenario.method.check(data.rows, data.features)
    return plan_of_data(scenario, data, capacity or this_machine())


def plan_of_data(scenario: Scenario, data: DataSizes, capacity: Capacity) -> RunPlan:
    """Plan one scenario from the sizes of its data."""
    clients = len(data.sizes) or scenario.clients.known_count or 0
    sizes = data.sizes
    seats = _seating(scenario, data, clients, capacity)
    rehearsed, asked = _rehearsed(scenario, data, seats.actors)
    ledger = rehearsed.ledger if rehearsed is not None else Ledger()
    for entry in data.agreement if rehearsed is not None else ():
        ledger.record(entry)
    features = rehearsed.features if rehearsed is not None else data.features
    load = _load(scenario, data, features, clients, seats.actors, ledger, capacity.machines[0])
    nodes = needs_of(load, _hosted(seats.actors, data.nodes, capacity), capacity) if data.known else ()
    efforts = rehearsed.efforts if rehearsed is not None else {}
    stages: tuple[StageTime, ...] = ()
    if data.known:
        stages = stage_times(
            load,
            efforts,
            scenario.method,
            capacity.cores,
            capacity.machines[0].cores,
            scenario.method.central_operations(data.rows, features),
        )
    short = any(not node.fits for node in nodes)
    return RunPlan(
        scenario=scenario.name,
        method=scenario.method.kind,
        rows=data.rows,
        features=data.features,
        clients=clients,
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        held_out=data.held_out,
        federation=scenario.runtime.federation,
        actors=seats.actors,
        seating=seats.line if seats.actors else "everything in one process",
        rounds=rehearsed.rounds if rehearsed is not None else 0,
        messages=_messages(ledger, rehearsed),
        bytes_up=ledger.bytes("up"),
        bytes_down=ledger.bytes("down"),
        privacy=_privacy(ledger, scenario, data, rehearsed) if rehearsed is not None else None,
        memory=footprint(load) if data.known else (),
        nodes=nodes,
        remedies=remedies(load, scenario, bool(data.nodes), capacity) if short else (),
        stages=stages,
        notes=_notes(scenario, data, rehearsed),
        policies=_policies(data, asked),
        network_seconds=_network_seconds(scenario, data, rehearsed),
    )


def _seating(scenario: Scenario, data: DataSizes, clients: int, capacity: Capacity) -> Seating:
    if scenario.runtime.federation == "inline":
        return Seating(clients, 0)
    packing = "per-client" if scenario.clients.sites or scenario.clients.deployed else scenario.runtime.actors
    table = 0 if scenario.clients.sites else round(data.rows * data.features * data.itemsize)
    return seating(clients, packing, max(1, capacity.cores), capacity.memory_bytes, table)


def _policies(data: DataSizes, asked: Mapping[str, Asked]) -> tuple[PlannedPolicy, ...]:
    """Return the answer of each site's policy; none if no site has one."""
    planned = []
    for site in data.policies:
        of_site = asked.get(site.site, Asked())
        before = [sentence for name, sentence in data.refused if name == site.site]
        refusals = (*before, *of_site.refused.values())
        planned.append(
            PlannedPolicy(
                site=site.site,
                policy=site.name,
                rules=site.rules,
                allowed=not refusals,
                refusals=refusals,
                counts=tuple(of_site.counts),
            )
        )
    return tuple(planned)


def _rehearsed(
    scenario: Scenario, data: DataSizes, actors: int
) -> tuple[Rehearsed | None, Mapping[str, Asked]]:
    """Return the rehearsal of a run, and what the sites' policies said."""
    if not data.known:
        return None, {}
    rehearsed, clients = rehearsal_of(scenario, data, actors)
    return rehearsed, clients.asked


def rehearsal_of(scenario: Scenario, data: DataSizes, actors: int = 0) -> tuple[Rehearsed, RehearsalClients]:
    """Return the rehearsal of a run with data of these sizes, and the rehearsed clients."""
    clients = len(data.sizes)
    plan = plan_of(scenario, clients, data.harmonizing, data.joint, data.target, data.public_targets)
    plan, reserve = with_public(
        replace(plan, cells=data.cells, network=network_of(scenario, data.names)), data.public
    )
    # As in the backends: inline, a crash affects only one client.
    homes = pack(clients, actors or clients)
    classes = None
    if plan.harmonize is not None and plan.harmonize.covariates.classes:
        # The assignment of rows to classes does not affect any count.
        classes = np.arange(len(data.sample)) % plan.harmonize.covariates.classes
    target, targets = plan.target, np.zeros(0)
    if target is not None:  # values do not affect any count, but two must differ
        numbers = np.arange(len(data.sample), dtype=np.float64) % max(2, target.width)
        targets = target.low + numbers * (1.0 if target.classes else target.high - target.low)
    rehearsal_clients = RehearsalClients(
        sizes=data.sizes,
        sample=data.sample,
        homes=homes,
        seed=scenario.seed,
        faults=plan.faults,
        reserve=reserve,
        classes=classes,
        targets=targets if target is not None else None,
        policies=data.policies,
    )
    rehearsed = rehearse(rehearsal_clients, plan)
    rehearsal_clients.ask_budgets()
    return rehearsed, rehearsal_clients


def _load(
    scenario: Scenario,
    data: DataSizes,
    features: int,
    clients: int,
    actors: int,
    ledger: Ledger,
    machine: Machine,
) -> Load:
    entries = [entry for entry in ledger.entries.values() if entry.count]
    posted = sum(
        entry.bytes
        for entry in entries
        if entry.direction == "up" and entry.granularity == Granularity.PER_RECORD
    )
    shared = [entry.bytes // entry.count for entry in entries if entry.granularity != Granularity.PER_RECORD]
    embedder = scenario.method.drawn_by
    return Load(
        rows=data.rows,
        features=features,
        itemsize=data.itemsize,
        clients=clients,
        largest=max(data.sizes, default=0),
        actors=actors,
        posted=posted,
        message=max(shared, default=0),
        embedder=_kind_of(embedder),
        neighbours=embedder.neighbors_needed(data.rows) if embedder is not None and data.known else 0,
        torch=scenario.method.package == "torch",
        central="central" in scenario.compare,
        metrics=scenario.metric_names(),
        threads=machine.cores,
        read=round(data.read * data.features * data.itemsize),
        held_out=data.held_out,
        coordinates=scenario.method.coordinate_bytes(data.rows, features)
        if embedder is not None and data.known
        else 0,
        sparse=data.sparse,
        server=scenario.method.server_bytes(data.rows, features, clients) if data.known else 0,
    )


def _kind_of(embedder: Any) -> str | None:
    """Return the name of an embedder, or of the embedder that a method inherits from."""
    if embedder is None:
        return None
    from raydr.embedding import EMBEDDERS

    for name, kind in EMBEDDERS.items():
        if isinstance(embedder, kind):
            return name
    return "other"


def _hosted(actors: int, nodes: Sequence[str | None], capacity: Capacity) -> tuple[int, ...]:
    """Return the number of actors on each machine: those with a node there, the others spread evenly."""
    machines = capacity.machines
    hosted = [0] * len(machines)
    spread = actors
    for node in nodes:
        for index, machine in enumerate(machines):
            if node is not None and node in machine.labels:
                hosted[index] += 1
                spread -= 1
                break
    for index in range(len(machines)):
        hosted[index] += spread // len(machines) + (index < spread % len(machines))
    return tuple(hosted)


def _network_seconds(scenario: Scenario, data: DataSizes, rehearsed: Rehearsed | None) -> float | None:
    """Return the seconds of a rehearsed run's messages, and of those before it, on the scenario's lines."""
    network = network_of(scenario, data.names) if rehearsed is not None else None
    if network is None or rehearsed is None or rehearsed.network_seconds is None:
        return None
    return rehearsed.network_seconds + sum(map(network.seconds_of, data.agreement))


def _messages(ledger: Ledger, rehearsed: Rehearsed | None) -> tuple[PlannedMessages, ...]:
    assumed = rehearsed.guesses if rehearsed is not None else {}
    return tuple(
        PlannedMessages(
            kind=entry.kind,
            what=entry.what,
            direction=entry.direction,
            granularity=str(entry.granularity),
            count=entry.count,
            bytes=entry.bytes,
            epsilon=entry.epsilon,
            assumed=assumed.get(entry.kind, ""),
        )
        for entry in ledger.entries.values()
    )


def _privacy(ledger: Ledger, scenario: Scenario, data: DataSizes, rehearsed: Rehearsed) -> PlannedPrivacy:
    cost = statement(ledger, scenario.privacy.budget, data.sizes)
    return PlannedPrivacy(
        epsilon=cost.epsilon if rehearsed.whole else None,
        accounted=cost.epsilon_accounted if ledger.charges else None,
        delta=cost.delta,
        infinite=cost.infinite,
        known=rehearsed.whole,
        unit=cost.unit,
        relation=cost.relation,
        by_adversary=cost.epsilon_by_adversary,
        notices=cost.notices,
    )


def _notes(scenario: Scenario, data: DataSizes, rehearsed: Rehearsed | None) -> tuple[str, ...]:
    notes = list(data.unknown)
    if rehearsed is None:
        return tuple(notes)
    if rehearsed.failure is not None:
        notes.append(f"The run would fail: {rehearsed.failure}")
    if not rehearsed.whole:
        notes.append(
            f"The method {scenario.method.kind!r} does not declare its messages in advance (it has no rehearse). The"
            " plan counts only what comes before it: its messages and rounds are not in memory and time."
        )
    notes += [f"{kind} is estimated: {why}." for kind, why in rehearsed.guesses.items()]
    if not data.whole:
        notes.append("Where the data decide the number of requests, the plan used a sample of the rows.")
    if scenario.audit is not None:
        notes.append(
            "The audit repeats the federation and the method in one process, then attacks what the server saw. The"
            " times above do not include it."
        )
    noise = scenario.privacy.noise
    if getattr(noise, "sigma", None) is not None and getattr(scenario.method, "gamma", 1.0) is None:
        notes.append(
            "The epsilon of privacy.noise.sigma depends on the bandwidth, which the plan estimated: set method.gamma"
            " for an exact value."
        )
    return tuple(notes)
