"""Other maps of a finished run's rows: with other seeds, and without a site.

The data stay dealt to clients as in the run. With another seed, noise and keys are drawn again too. Without a site,
columns and anchors stay those of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import RaydrError, RunError, ScenarioError
from raydr.federation.client import HostSecrets
from raydr.geometry.points import Geometry, Points
from raydr.journal import Event, Journal, Progress
from raydr.methods.method import MethodSettings
from raydr.metrics.stability import LEAST_ROWS, OtherMap
from raydr.privacy.composition import composed
from raydr.privacy.ledger import Granularity, Ledger
from raydr.privacy.statement import statement
from raydr.runfolder import RunFolder
from raydr.runfolder.stability import RepetitionCost
from raydr.scenarios.afterwards.transforming import placing_of
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import ClientData, present
from raydr.scenarios.running.federation_plan import plan_with_data
from raydr.scenarios.running.harmony import harmonizing_of
from raydr.scenarios.running.identity import Identity, origin_of
from raydr.scenarios.running.pooling import Dealt
from raydr.scenarios.running.site_policies import policies_of
from raydr.scenarios.running.target import target_of
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import rows_taken

MOST_SITES = 10
"""Maximum number of sites that are left out: each costs a repetition of the run."""
_LEAST_SITES = 3
"""Minimum number of sites, because one site alone is no federation."""


class OtherMaps(Protocol):
    """A source of other maps of a run's rows, in the table's order."""

    def sites(self, wanted: bool | None) -> tuple[list[int], list[str]]:
        """Return the sites that can be left out, and sentences on why others cannot.

        Raises
        ------
        ScenarioError
            If none can, and ``wanted`` is True.
        """

    def require_budget(self, repetitions: int) -> None:
        """Raise ScenarioError if the run and this many other maps would exceed ``privacy.epsilon_max``."""

    def with_seed(self, seed: int) -> OtherMap:
        """Return the map with another seed."""

    def without(self, site: int) -> OtherMap:
        """Return the map without a site that can be left out."""

    def cost(self) -> RepetitionCost:
        """Return what the maps so far would cost in a deployed federation."""


def other_maps(run: RunFolder, scenario: Scenario, client_data: ClientData, journal: Journal) -> OtherMaps:
    """Return layouts of the run's messages if its method can draw them again, or else repetitions of the run."""
    if scenario.method.offers("redraw_layout"):
        return Layouts.of(run, scenario, client_data, journal)
    return Repetitions(run, scenario, client_data, journal)


def geometry_of(method: MethodSettings, places: FloatArray) -> Geometry:
    """Return the distances on a map."""
    own = method.mapped(places)
    return Points(np.asarray(places, np.float64)) if own is None else own


def _other(method: MethodSettings, places: FloatArray, rows: Int64Array) -> OtherMap:
    points = np.asarray(places, np.float64)
    return OtherMap(points, rows, geometry_of(method, points))


@dataclass(frozen=True)
class Layouts:
    """Layouts with other seeds of the messages that the run's server received: no message is sent twice.

    Attributes
    ----------
    run : RunFolder
        The run.
    scenario : Scenario
        Its scenario.
    client_data : ClientData
        Its data.
    journal : Journal
        Receives the stages.
    model : mapping of name to array
        The run's model.
    parts : sequence of (rows, features) array
        Each client's prepared rows.
    """

    run: RunFolder
    scenario: Scenario
    client_data: ClientData
    journal: Journal
    model: Mapping[str, FloatArray]
    parts: Sequence[FloatArray]

    @classmethod
    def of(cls, run: RunFolder, scenario: Scenario, client_data: ClientData, journal: Journal) -> Layouts:
        """Read the model of a run, and check that its seed gives the run's map.

        Raises
        ------
        RunError
            If the map differs.
        """
        placing, owners = placing_of(run.path, "the run"), client_data.client_of_row
        rows = placing.preparation.applied(
            client_data.pooled(), owners, client_data.kept_classes, client_data.targets
        )
        parts = [
            rows_taken(rows, np.flatnonzero(owners == client)) for client in range(len(client_data.names))
        ]
        found = cls(run, scenario, client_data, journal, placing.model.arrays, parts)
        if not np.array_equal(found._drawn(scenario.seed), run.federated):
            raise RunError(
                f"The layout of the run in {run.path} cannot be drawn again: its seed gives a different map here."
                " Results can differ between processors without runtime.portable: run the scenario again here, and"
                " compare its maps."
            )
        return found

    def sites(self, wanted: bool | None) -> tuple[list[int], list[str]]:
        """Return no site: each would cost the run's epsilon again."""
        if wanted:
            again = composed([self.run.privacy.cost] * 2, self.run.privacy.delta)
            raise ScenarioError(
                "A map without a site needs the noisy messages of the other sites again, and each repetition costs as"
                f" much epsilon as the run. {again.words} Leave out --without-sites: layouts with other seeds come from"
                " the messages of the run and cost nothing."
            )
        return [], ["No site was left out, because each would cost the run's epsilon again."]

    def require_budget(self, repetitions: int) -> None:
        """Do nothing: layouts cost no epsilon."""

    def with_seed(self, seed: int) -> OtherMap:
        """Return the map with another seed of its layout."""
        with self.journal.stage(f"map with seed {seed}"):
            drawn = self._drawn(seed)
        return _other(self.scenario.method, drawn, np.arange(len(drawn)))

    def without(self, site: int) -> OtherMap:
        """Raise RunError, because no site can be left out."""
        raise RunError(f"There is no layout without {self.client_data.names[site]}.")

    def _drawn(self, seed: int) -> FloatArray:
        drawn = self.scenario.method.redraw_layout(self.model, self.parts, seed)
        return drawn[self.client_data.in_table_order]

    def cost(self) -> RepetitionCost:
        """Return no cost."""
        epsilon, delta = self.run.privacy.epsilon, self.run.privacy.delta
        return RepetitionCost(
            redrawn=True,
            repetitions=0,
            messages=0,
            per_record=0,
            bytes=0,
            epsilon=epsilon,
            accounted=self.run.privacy.epsilon_accounted,
            epsilon_run=epsilon,
            delta=delta,
        )


@dataclass(frozen=True)
class Repetitions:
    """Repetitions of a run in this process, with other seeds or fewer sites."""

    run: RunFolder
    scenario: Scenario
    client_data: ClientData
    journal: Journal
    ledgers: list[tuple[Ledger, list[int]]] = field(default_factory=list)
    """Ledger of each repetition so far, and the rows of its sites."""

    def sites(self, wanted: bool | None) -> tuple[list[int], list[str]]:
        """Return the sites that can be left out, and sentences on the others."""
        if wanted is False:
            return [], []
        names, sizes = self.client_data.names, self._sizes(self.client_data)
        holding = [site for site, rows in enumerate(sizes) if rows]
        if len(holding) < _LEAST_SITES:
            few = (
                f"The run has {len(holding)} site{'s' * (len(holding) != 1)} with rows, and leaving one out needs"
                f" {_LEAST_SITES}"
            )
            if wanted:
                raise ScenarioError(f"{few}: leave out --without-sites.")
            return [], [f"{few}, so none was left out."]
        chosen = sorted(sorted(holding, key=lambda site: -sizes[site])[:MOST_SITES])
        kept = []
        if len(chosen) < len(holding):
            kept.append(
                f"Only the {len(chosen)} largest of {len(holding)} sites were left out, one at a time."
            )
        usable = []
        for site in chosen:
            reason = self._why_not(site, sizes)
            if reason:
                kept.append(f"{names[site]} was not left out: {reason}")
            else:
                usable.append(site)
        return usable, kept

    def _why_not(self, site: int, sizes: Sequence[int]) -> str:
        """Return why a run without a site is not possible, as a sentence; "" if it is."""
        rest = sum(sizes) - sizes[site]
        if rest < LEAST_ROWS:
            return f"the other sites have {rest} rows, and comparing neighbours needs {LEAST_ROWS}."
        try:
            less = without(self.client_data, site, self.scenario)
            self.scenario.require_clients(len(less.names))
            self.scenario.method.check(less.rows, less.features)
        except RaydrError as error:
            return str(error)
        return ""

    @staticmethod
    def _sizes(client_data: ClientData) -> list[int]:
        sizes: list[int] = np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()
        return sizes

    def require_budget(self, repetitions: int) -> None:
        """Raise ScenarioError if the run and this many repetitions would exceed privacy.epsilon_max."""
        limit, cost = self.scenario.privacy.epsilon_max, self.run.privacy.cost
        if limit is None or not cost.accounted:
            return
        spent = composed([cost] * (1 + repetitions), cost.delta).accounted
        if spent is None or spent > limit:
            together = "" if spent is None else f" of about {spent:.3g}"
            raise ScenarioError(
                f"privacy.epsilon_max is {limit:g}, but the run and {repetitions}"
                f" repetition{'s' * (repetitions != 1)} would have a total"
                f" epsilon{together}, because each repetition draws its releases again. Compare fewer maps (--seeds,"
                " --no-without-sites), or run the scenario with a larger privacy.epsilon_max."
            )

    def with_seed(self, seed: int) -> OtherMap:
        """Return the map of the run with another seed."""
        places = self._served(self.client_data, seed, f"map with seed {seed}")
        return _other(self.scenario.method, places, np.arange(len(places)))

    def without(self, site: int) -> OtherMap:
        """Return the map of the run without a site."""
        less = without(self.client_data, site, self.scenario)
        places = self._served(less, self.scenario.seed, f"map without {self.client_data.names[site]}")
        return _other(self.scenario.method, places, np.flatnonzero(self.client_data.client_of_row != site))

    def _served(self, client_data: ClientData, seed: int, name: str) -> FloatArray:
        """Run the federation in this process, and return the map in the table's order."""
        plan, reserve = plan_with_data(self.scenario, client_data)
        as_run = self.scenario.model_copy(update={"seed": seed})
        with self.journal.stage(name), _named(name):
            rooted = origin_of(as_run).begin(
                Identity.of(as_run, client_data).study, repeatable=as_run.runtime.quorum == 1
            )
            served = InlineBackend().serve(
                client_data.parts,
                replace(
                    plan,
                    run=rooted.name,
                    seed=seed,
                    checkpoint_every=0,
                    evaluate_every=0,
                    fidelity_rows=0,
                    geometry=False,
                ),
                listener=self._moved,
                host_secrets=HostSecrets.derived(
                    rooted.root,
                    range(len(client_data.names)),
                    reserve,
                    client_data.own_classes,
                    client_data.own_targets,
                ),
                policies=policies_of(client_data),
            )
        for entry in client_data.surveyed:
            served.ledger.record(entry)
        self.ledgers.append((served.ledger, self._sizes(client_data)))
        return served.outcome.embedding[client_data.in_table_order]

    def _moved(self, event: Event) -> None:
        """Pass on only the progress of a repetition: it has the stages of the run."""
        if isinstance(event, Progress):
            self.journal.progress(event.done, event.total)

    def cost(self) -> RepetitionCost:
        """Return what the repetitions so far would cost, from their ledgers."""
        up = [
            entry
            for ledger, _ in self.ledgers
            for entry in ledger.entries.values()
            if entry.direction == "up"
        ]
        budget = self.scenario.privacy.budget
        costs = [statement(ledger, budget, sizes).cost for ledger, sizes in self.ledgers]
        own = self.run.privacy.cost
        whole = composed([own, *costs], own.delta)
        return RepetitionCost(
            redrawn=False,
            repetitions=len(self.ledgers),
            messages=sum(entry.count for entry in up),
            per_record=sum(entry.count for entry in up if entry.granularity == Granularity.PER_RECORD),
            bytes=sum(entry.bytes for entry in up),
            epsilon=whole.epsilon,
            accounted=whole.accounted,
            epsilon_run=own.epsilon,
            delta=own.delta,
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of the map to an error."""
    try:
        yield
    except RaydrError as error:
        error.add_note(f"This was the {name}. The run folder is unchanged.")
        raise


def without(client_data: ClientData, site: int, scenario: Scenario) -> ClientData:
    """Return the data of all other sites, with the columns and public rows of the run, and without periods.

    Raises
    ------
    DataError
        If labels have a part in the run, and the other sites lack them.
    """
    rows = np.flatnonzero(client_data.client_of_row != site)
    owners = client_data.client_of_row[rows]
    owners = owners - (owners > site)
    names = tuple(name for other, name in enumerate(client_data.names) if other != site)
    labels = None if client_data.labels is None else client_data.labels[rows]
    held = client_data.held
    return replace(
        client_data,
        names=names,
        held=Dealt(rows_taken(held(), rows), owners, len(names))
        if isinstance(held, Dealt)
        else tuple(part for other, part in enumerate(held) if other != site),
        client_of_row=owners,
        policies=tuple(own for other, own in enumerate(client_data.policies) if other != site),
        ids=client_data.ids[rows],
        labels=labels,
        gaps=(),
        harmonizing=harmonizing_of(
            scenario.data, client_data.layout, present(labels, client_data.label_names)
        ),
        target=target_of(scenario.data, labels, client_data.label_names),
        times=None,
    )
