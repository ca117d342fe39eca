"""What a run will need, told before anything starts: ``raydr plan``.

Messages and their price in privacy come from a rehearsal (:func:`raydr.methods.serving.rehearse`), which asks what the
run will ask of clients that have sizes alone; memory and time from models of both, in this room's
``run_memory`` and ``run_time``. No Ray is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raydr.actors.capacity import Capacity, Machine, this_machine
from raydr.actors.packing import Seating, pack, seating
from raydr.data import DATASETS
from raydr.federation import Crowd
from raydr.methods.serving import Rehearsed, rehearse
from raydr.metrics import default_metrics
from raydr.privacy.accounting import Adversary
from raydr.privacy.ledger import Granularity, Ledger
from raydr.privacy.mechanism import Relation, Unit
from raydr.privacy.statement import Against, statement
from raydr.scenarios.planning.data_sizes import Prospect, of_so_many, prospect_of
from raydr.scenarios.planning.remedies import NodeNeed, Remedy, needs_of, remedies
from raydr.scenarios.planning.run_memory import Load, ProcessMemory, footprint
from raydr.scenarios.planning.run_time import StageTime, stage_times
from raydr.scenarios.running.federation_plan import plan_of, with_public
from raydr.scenarios.schema.scenario import Scenario


@dataclass(kw_only=True, frozen=True)
class PlannedMessages:
    """All messages of one kind in one direction, as ledger.json will have them.

    Attributes
    ----------
    kind, what, direction, granularity : str
        As the ledger's.
    count, bytes : int
        Of all clients together.
    epsilon : float or None
        Claimed for them.
    assumed : str
        Why their bytes are an estimate; empty where they are exact.
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
    """What the accountant will say.

    Attributes
    ----------
    epsilon : float or None
        Of the whole run; None where it is infinite, or not known.
    accounted : float or None
        Of all releases that noise with a claim covers; None where there are none.
    delta : float
        At which both are told.
    infinite : tuple of str
        Why the whole run has no epsilon.
    known : bool
        Whether the method's own releases are in it.
    unit : {"record", "client"} or None
        What the charged releases hide; None where there are none.
    relation : {"zero-out", "replace-one"} or None
        Under which relation.
    by_adversary : mapping of name to Against
        As privacy.json has it.
    notices : tuple of str
        What weakens the claim.
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
class Plan:
    """What a run will need.

    Attributes
    ----------
    scenario, method : str
        Its name, and the method's.
    rows, features, clients : int
        Of the data; 0 rows and features where nobody can say from here.
    smallest, largest : int
        Rows of a client.
    held_out : int
        Rows that no client is given.
    federation : str
        "ray" or "inline".
    actors : int
        Client actors; 0 inline.
    seating : str
        How clients are packed, and why.
    rounds : int
        In which clients are asked, or the server computes by itself.
    messages : tuple of PlannedMessages
        In the ledger's order.
    bytes_up, bytes_down : int
        Of all of them.
    privacy : PlannedPrivacy
        What they will cost.
    memory : tuple of ProcessMemory
        Peak of each kind of process.
    nodes : tuple of NodeNeed
        What each machine needs, and has.
    remedies : tuple of Remedy
        Each of which would make it fit; empty where it does, or nothing would.
    stages : tuple of StageTime
        Seconds, roughly.
    notes : tuple of str
        What else should be known: what is assumed, what is not known, what will end the run.
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

    @property
    def fits(self) -> bool:
        """Whether every machine has the memory that it needs."""
        return all(node.fits for node in self.nodes)

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file."""
        nodes = [asdict(node) | {"fits": node.fits} for node in self.nodes]
        return asdict(self) | {"nodes": nodes, "fits": self.fits, "seconds": self.seconds}


def plan_of_scenario(
    scenario: Scenario,
    *,
    capacity: Capacity | None = None,
    data_dir: Path | None = None,
    rows: int | None = None,
) -> Plan:
    """Plan one scenario.

    Parameters
    ----------
    scenario : Scenario
        To be run.
    capacity : Capacity, optional
        Where; this machine with the memory that is free now, unless given.
    data_dir : Path, optional
        Folder of built-in data sets.
    rows : int, optional
        As if the data had so many, like those that they have.

    Raises
    ------
    ScenarioError, DataError
        For what would refuse the run.
    """
    prospect = prospect_of(scenario, data_dir)
    if rows is not None:
        prospect = of_so_many(prospect, rows)
        scenario.method.check(prospect.rows, prospect.features)
    return plan_of_prospect(scenario, prospect, capacity or this_machine())


def plan_of_prospect(scenario: Scenario, prospect: Prospect, capacity: Capacity) -> Plan:
    """Plan one scenario with the data that it will have."""
    clients = len(prospect.sizes) or len(scenario.clients.sites)
    sizes = prospect.sizes
    seats = _seating(scenario, prospect, clients, capacity)
    rehearsed = _rehearsed(scenario, prospect, seats.actors)
    ledger = rehearsed.ledger if rehearsed is not None else Ledger()
    for entry in prospect.agreement if rehearsed is not None else ():
        ledger.record(entry)
    load = _load(scenario, prospect, clients, seats.actors, ledger, capacity.machines[0])
    nodes = (
        needs_of(load, _hosted(seats.actors, prospect.nodes, capacity), capacity) if prospect.known else ()
    )
    efforts = rehearsed.efforts if rehearsed is not None else {}
    stages: tuple[StageTime, ...] = ()
    if prospect.known:
        stages = stage_times(
            load,
            efforts,
            scenario.method,
            capacity.cores,
            capacity.machines[0].cores,
            scenario.method.central_operations(prospect.rows, prospect.features),
        )
    short = any(not node.fits for node in nodes)
    return Plan(
        scenario=scenario.name,
        method=scenario.method.kind,
        rows=prospect.rows,
        features=prospect.features,
        clients=clients,
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        held_out=prospect.held_out,
        federation=scenario.runtime.federation,
        actors=seats.actors,
        seating=seats.line if seats.actors else "everything in this process",
        rounds=rehearsed.rounds if rehearsed is not None else 0,
        messages=_messages(ledger, rehearsed),
        bytes_up=ledger.bytes("up"),
        bytes_down=ledger.bytes("down"),
        privacy=_privacy(ledger, scenario, prospect, rehearsed) if rehearsed is not None else None,
        memory=footprint(load) if prospect.known else (),
        nodes=nodes,
        remedies=remedies(load, scenario, bool(prospect.nodes), capacity) if short else (),
        stages=stages,
        notes=_notes(scenario, prospect, rehearsed),
    )


def _seating(scenario: Scenario, prospect: Prospect, clients: int, capacity: Capacity) -> Seating:
    if scenario.runtime.federation == "inline":
        return Seating(clients, 0)
    packing = "per-client" if scenario.clients.sites else scenario.runtime.actors
    table = 0 if scenario.clients.sites else prospect.rows * prospect.features * prospect.itemsize
    return seating(clients, packing, max(1, capacity.cores), capacity.memory_bytes, table)


def _rehearsed(scenario: Scenario, prospect: Prospect, actors: int) -> Rehearsed | None:
    if not prospect.known:
        return None
    clients = len(prospect.sizes)
    plan, reserve = with_public(plan_of(scenario, clients, prospect.harmonizing), prospect.public)
    # As the backends have it: inline, a crash strikes one client alone.
    homes = pack(clients, actors or clients)
    classes = None
    if plan.harmonize is not None and plan.harmonize.covariates.classes:
        # Which row is of which class decides nothing that is counted.
        classes = np.arange(len(prospect.sample)) % plan.harmonize.covariates.classes
    crowd = Crowd(
        sizes=prospect.sizes,
        sample=prospect.sample,
        homes=homes,
        seed=scenario.seed,
        faults=plan.faults,
        reserve=reserve,
        classes=classes,
    )
    return rehearse(crowd, plan)


def _load(
    scenario: Scenario,
    prospect: Prospect,
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
    embedder, source = scenario.method.drawn_by, scenario.data.source
    metrics = scenario.metrics
    if metrics == "default":
        metrics = default_metrics()
    return Load(
        rows=prospect.rows,
        features=prospect.features,
        itemsize=prospect.itemsize,
        clients=clients,
        largest=max(prospect.sizes, default=0),
        actors=actors,
        posted=posted,
        message=max(shared, default=0),
        embedder=_kind_of(embedder),
        neighbours=embedder.neighbors_needed(prospect.rows) if embedder is not None and prospect.known else 0,
        torch=scenario.method.package == "torch",
        central="central" in scenario.compare,
        metrics=metrics,
        threads=machine.cores,
        bundled=source is not None and DATASETS[source].origin == "bundled",
        read=prospect.read * prospect.features * prospect.itemsize,
        held_out=prospect.held_out,
        copies=scenario.method.coordinate_copies,
        server=scenario.method.server_bytes(prospect.rows, prospect.features, clients)
        if prospect.known
        else 0,
    )


def _kind_of(embedder: Any) -> str | None:
    """Name of an embedder; of a method that is one, of the embedder that it is."""
    if embedder is None:
        return None
    from raydr.embedding import EMBEDDERS

    for name, kind in EMBEDDERS.items():
        if isinstance(embedder, kind):
            return name
    return "other"


def _hosted(actors: int, nodes: Sequence[str | None], capacity: Capacity) -> tuple[int, ...]:
    """Actors on each machine: those of named nodes there, the others spread evenly."""
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


def _privacy(ledger: Ledger, scenario: Scenario, prospect: Prospect, rehearsed: Rehearsed) -> PlannedPrivacy:
    told = statement(ledger, scenario.privacy.budget, prospect.sizes)
    return PlannedPrivacy(
        epsilon=told.epsilon if rehearsed.whole else None,
        accounted=told.epsilon_accounted if ledger.charges else None,
        delta=told.delta,
        infinite=told.infinite,
        known=rehearsed.whole,
        unit=told.unit,
        relation=told.relation,
        by_adversary=told.epsilon_by_adversary,
        notices=told.notices,
    )


def _notes(scenario: Scenario, prospect: Prospect, rehearsed: Rehearsed | None) -> tuple[str, ...]:
    notes = list(prospect.unknown)
    if rehearsed is None:
        return tuple(notes)
    if rehearsed.failure is not None:
        notes.append(f"The run will not come to its end: {rehearsed.failure}")
    if not rehearsed.whole:
        notes.append(
            f"The method {scenario.method.kind!r} does not say beforehand what it sends (it has no rehearse), so only"
            " what comes before it is counted, and neither its messages nor its rounds are in memory and time."
        )
    notes += [f"{kind} is estimated: {why}." for kind, why in rehearsed.guesses.items()]
    if not prospect.whole:
        notes.append(
            "A sample of the rows answered for all where the data decide how often something is asked."
        )
    if scenario.audit is not None:
        notes.append(
            "The audit repeats the run in one process, so federation and method take their time once more, beside that"
            " of the attacks; neither is in the times above."
        )
    noise = scenario.privacy.noise
    if getattr(noise, "sigma", None) is not None and getattr(scenario.method, "gamma", 1.0) is None:
        notes.append(
            "What privacy.noise.sigma is worth depends on the bandwidth, which was estimated: set method.gamma."
        )
    return tuple(notes)
