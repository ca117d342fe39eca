"""The driver's view of client data: names, row owners, labels, handles to the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data import (
    IN_MEMORY,
    Layout,
    Provenance,
    Site,
    Source,
    Table,
    hold_out,
    load,
    load_graph,
    set_apart,
)
from raydr.data.alike import load_alike
from raydr.data.loading import NO_LABEL
from raydr.data.site import gaps_of
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.coding import Coding
from raydr.data.survey.columns import Alike, require
from raydr.data.survey.doubtful_words import of_classes
from raydr.data.survey.notices import (
    ONE_VALUE,
    common_looks,
    looks,
    of_columns,
    of_label,
    of_measurements,
    of_rare_words,
)
from raydr.data.survey.site_names import of_sites
from raydr.data.survey.spelling import Agreement
from raydr.errors import DataError, FeatureError, ScenarioError
from raydr.geometry.points import Progress, unheard
from raydr.privacy.ledger import Entry, Granularity
from raydr.privacy.policy import Policy, SitePolicy
from raydr.privacy.policy_file import read_policy
from raydr.scenarios.running.column_survey import agreement_on
from raydr.scenarios.running.general_policies import general_policies, stricter_threshold
from raydr.scenarios.running.harmony import harmonized_of, harmonizing_of, notices_of_sites, owners_of
from raydr.scenarios.running.pooling import Dealt, by_client
from raydr.scenarios.running.sparsity import in_form
from raydr.scenarios.running.target import notices_of_target, target_of
from raydr.scenarios.running.times import Times, times_of, times_with
from raydr.scenarios.running.withdrawn import notices_of_public, of_other_clients, without
from raydr.scenarios.schema.data import DataSettings
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.dissimilarity import Metric, require_suited, width_of
from raydr.statistics.harmonizing import Harmonizing
from raydr.statistics.steering import Target


@dataclass(kw_only=True, frozen=True)
class ClientData:
    """Clients and their rows; arrays over rows are in the table's order, or site by site.

    Attributes
    ----------
    names : tuple of str
        Names of the clients.
    held : Dealt, or tuple of Site
        Each client's rows, or the place of its file.
    client_of_row : (rows,) int64
        Client of each row.
    ids : (rows,)
        Identities of the rows; unique only within a client if clients have their own files.
    labels : (rows,) int64 or None
        Classes, indices of ``label_names``.
    label_names : tuple of str
        Names of the classes.
    times : Times or None
        Time and period of each row; None without a column of time.
    feature_names : tuple of str
        Names of the columns.
    pooled : callable
        Returns all rows in this order, for the evaluation.
    sources : tuple of Source
        Files or data set that were read: one table, or each client's own file.
    public : (rows, features) array or None
        Public rows.
    public_labels : (public rows,) int64 or None
        Their classes, indices of ``label_names``.
    anchors : Source or None
        The separate file of the public rows, if they have one.
    held_out : Table or None
        Rows that no client has, to be placed on the map; None if there are none.
    withdrawn : int
        Number of rows of clients that take no part.
    filling : str or None
        Statistic that fills in missing values; None if no value may be missing.
    words : mapping of column to tuple of str
        Words of text columns; each word is a feature of zeros and ones.
    units : mapping of column to str
        Units of the columns of numbers that some file spells as text.
    codings : mapping of column to Coding
        How columns are read that are more than numbers or words.
    gaps : sequence of (features,) int64
        Number of missing values of each feature at each client; empty if no value may be missing.
    agreed : Agreement or None
        Size of the messages in which clients agree on columns and words; None if there were none.
    harmonizing : Harmonizing or None
        How sites are adjusted to each other; None if they are not.
    target : Target or None
        The label, if it takes part in distances.
    looks : (features,) int64 or None
        What each feature looks like (:func:`raydr.data.survey.notices.looks`). None if nothing may depend on the values
        of columns, not even the notices.
    notices : tuple of str
        Warnings about columns for the user.
    policies : tuple of tuple of Policy
        Policies of each client; empty if no client has one.
    """

    names: tuple[str, ...]
    held: Dealt | tuple[Site, ...]
    client_of_row: Int64Array
    ids: NDArray[Any]
    labels: Int64Array | None
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    pooled: Callable[[], FloatArray]
    sources: tuple[Source, ...]
    public: FloatArray | None = None
    public_labels: Int64Array | None = None
    anchors: Source | None = None
    held_out: Table | None = None
    withdrawn: int = 0
    filling: str | None = None
    gaps: Sequence[Int64Array] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    codings: Mapping[str, Coding] = field(default_factory=dict)
    agreed: Agreement | None = None
    harmonizing: Harmonizing | None = None
    target: Target | None = None
    times: Times | None = None
    looks: Int64Array | None = None
    notices: tuple[str, ...] = ()
    policies: tuple[tuple[Policy, ...], ...] = ()

    @property
    def parts(self) -> tuple[FloatArray | Site, ...]:
        """Rows of each client, or the places of their files."""
        return self.held.parts if isinstance(self.held, Dealt) else self.held

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.client_of_row)

    @property
    def periods(self) -> Int64Array | None:
        """Period of each row, an index of :attr:`period_names`; None without a column of time."""
        return None if self.times is None else self.times.period_of_row

    @property
    def period_names(self) -> tuple[str, ...]:
        """Names of the periods in their order."""
        return () if self.times is None else self.times.period_names

    @property
    def features(self) -> int:
        """Number of features of every row."""
        return len(self.feature_names)

    @property
    def kept_classes(self) -> Int64Array | None:
        """Class of each row among the classes that occur, if harmonizing keeps the effect of the label; else None."""
        if self.harmonizing is None or self.labels is None or not self.harmonizing.covariates.classes:
            return None
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def own_classes(self) -> tuple[Int64Array, ...]:
        """:attr:`kept_classes` by client; empty if harmonizing does not keep them."""
        classes = self.kept_classes
        return () if classes is None else self._of_clients(classes)

    @property
    def targets(self) -> Float64Array | None:
        """Label of each row as ``target`` numbers it; None if labels do not steer, or are at the sites."""
        labels = self.labels
        return None if self.target is None or labels is None else self.target.of(labels, self.label_names)

    @property
    def own_targets(self) -> tuple[Float64Array, ...]:
        """:attr:`targets` by client; empty if labels do not steer."""
        targets = self.targets
        return () if targets is None else self._of_clients(targets)

    @property
    def public_targets(self) -> Float64Array | None:
        """Label of each public row as ``target`` numbers it; None if they have none or labels do not steer."""
        if self.target is None or self.public_labels is None:
            return None
        return self.target.of(self.public_labels, self.label_names)

    def _of_clients(self, values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        ends = np.cumsum(np.bincount(self.client_of_row, minlength=len(self.names)))[:-1]
        return tuple(np.split(values[by_client(self.client_of_row)], ends))

    def sites_of(self, table: Table) -> Int64Array:
        """Return the client of each row of a table; raises as :func:`raydr.scenarios.running.harmony.owners_of`."""
        return owners_of(table, self.names)

    @property
    def layout(self) -> Layout:
        """Columns of the data that are mapped, and how."""
        return Layout.of(self.feature_names, self.words, self.units, self.codings)

    @property
    def surveyed(self) -> tuple[Entry, ...]:
        """Ledger entries for all messages and notices about columns that depend on values of rows."""
        if self.looks is None:
            return agreement_on(self.agreed, len(self.names))
        notices = Entry(
            kind="ColumnNotices",
            what="which columns look like an identity or codes, have a code for missing values or few values, or have"
            " one value, for data.json and the page",
            direction="simulation-only",
            granularity=Granularity.AGGREGATE,
            seen_by="readers of the run folder",
            count=len(self.names),
            bytes=8 * self.features * len(self.names),
        )
        return (*agreement_on(self.agreed, len(self.names)), notices)

    def provenance(self, scaling: str, metric: Metric = "euclidean") -> Provenance:
        """Return the provenance of the mapped data with this scaling and metric."""
        return Provenance(
            columns=self.feature_names,
            named=all(source.named for source in self.sources),
            scaling=scaling,
            metric=metric,
            sources=self.sources,
            mapped=self.rows,
            set_apart=len(self.public) if self.public is not None and self.anchors is None else 0,
            anchors=self.anchors,
            held_out=0 if self.held_out is None else len(self.held_out.rows),
            withdrawn=self.withdrawn,
            filling=self.filling,
            words=dict(self.words),
            units=dict(self.units),
            codings=dict(self.codings),
            filled={
                name: self.layout.by_column(lacking)
                for name, lacking in zip(self.names, self.gaps, strict=False)
                if lacking.any()
            },
            harmonized=harmonized_of(self.harmonizing, self.feature_names),
            notices=self.notices + notices_of_sites(self.harmonizing, self.names, self.client_of_row),
        )

    @property
    def in_table_order(self) -> Int64Array:
        """Positions of the table's rows among all rows ordered by client."""
        return np.argsort(by_client(self.client_of_row))


def dealt_out(
    scenario: Scenario, data_dir: Path | None, given: Table | None = None, *, progress: Progress = unheard
) -> ClientData:
    """Read the scenario's table, or use ``given``, and deal its rows to clients."""
    data, clients, general = scenario.data, scenario.clients, general_policies(scenario)
    apart = scenario.method.offers("public_rows")
    # Held-out and public rows are drawn from all rows.
    from_all = data.holdout is not None or apart
    table = (
        given
        if given is not None
        else read_table(scenario, data_dir, None if from_all else data.rows, progress)
    )
    table, made_dense = in_form(scenario, table)
    if given is None:
        require_excluded(data.exclude, table.features, [table.read_from])
    try:
        require_suited(data.metric, table.rows)
        features = width_of(data.metric, table.rows, table.layout.joint) if apart else 0
    except FeatureError as error:
        raise error.of(table.features) from None
    mapped, held_out, public = data.rows, None, None
    if data.holdout is not None:
        table, held_out = hold_out(table, data.holdout.wanted, data.rows, seed=scenario.seed)
        mapped = None if data.rows is None else data.rows - len(held_out.rows)
    target = target_of(data, table.labels, table.label_names)
    if apart:
        count = clients.partition.clients_in(table, clients.count)
        features += 0 if target is None else target.width
        wanted = scenario.method.public_rows(len(table.rows), mapped, features, count)
        table, public = set_apart(table, mapped, wanted, scenario.seed)
        public = public if wanted else None
    elif held_out is not None and mapped is not None:
        table, _ = set_apart(table, mapped, 0, scenario.seed)
    partition = clients.partition.deal(table, clients.count, scenario.seed)
    everyone = len(table.rows)
    if clients.without:
        table, partition = without(table, partition, clients.without, join_spellings=clients.join_spellings)
        held_out = of_other_clients(held_out, partition.names)
    # Columns of built-in data sets are known. With noise, print no notices: they depend on single rows.
    known = data.graph is not None or data.source not in (None, IN_MEMORY)
    looked = not (known or scenario.noisy)
    found = looks(table.rows) if looked else None
    rare_words = of_rare_words(table.rows, table.layout) if looked else ()
    # A table that was read here may be sorted in place.
    dealt = Dealt(table.rows, partition.client_of_row, partition.count, taken=given is None)
    of_public = notices_of_public(public, clients.without)
    notices: tuple[str, ...] = (*notices_of_target(data), *made_dense, *of_public)
    if found is not None:
        found = of_measurements(found, table.layout)
        found[common_looks(looks(part) for part in dealt.parts) == ONE_VALUE] = ONE_VALUE
        notices += (*table.doubts, *of_columns(table.features, found, table.constant_features))
        notices += (*rare_words, *of_classes(table.label_names))
        if table.labels is None and given is None:
            notices += of_label(table.layout.columns)
        if clients.partition.client_column is not None:
            notices += of_sites(partition.names)
    client_data = ClientData(
        names=partition.names,
        held=dealt,
        client_of_row=partition.client_of_row,
        ids=table.ids,
        labels=table.labels,
        label_names=table.label_names,
        feature_names=table.features,
        pooled=dealt,
        sources=(table.read_from,),
        public=None if public is None else np.asarray(public.rows),
        public_labels=None if public is None else public.labels,
        held_out=held_out,
        withdrawn=everyone - len(table.rows),
        filling=data.filling,
        gaps=[gaps_of(part) for part in dealt.parts] if data.filling else (),
        words=table.words,
        units=table.units,
        codings=table.codings,
        agreed=table.agreement,
        harmonizing=harmonizing_of(data, table.layout, present(table.labels, table.label_names)),
        target=target,
        times=times_of(data.time, table.times, table.time_names),
        looks=found,
        notices=notices,
        policies=(general,) * len(partition.names),
    )
    return with_joined_files(scenario, client_data) if clients.joined else client_data


def with_joined_files(scenario: Scenario, client_data: ClientData) -> ClientData:
    """Add the clients in ``clients.joined``, which have their own files with the columns of the table.

    Raises
    ------
    DataError
        If a file cannot be used, or has no labels and they take part in the run.
    ScenarioError
        If a name is taken.
    """
    data, described, general = scenario.data, scenario.clients.joined, general_policies(scenario)
    names = tuple(site.name or Path(site.path).stem for site in described)
    taken = sorted(set(names) & set(client_data.names))
    if taken:
        raise ScenarioError(
            f"clients.joined names {taken[0]!r}, which is a client of the table: give it another name."
        )
    layout = client_data.layout
    named = all(source.named for source in client_data.sources)
    names_words = SitePolicy(general).least_count < 2
    alike = Alike("the table", layout.columns, named, layout, names_words=names_words)
    tables = [
        load_alike(
            Path(site.path).expanduser(),
            alike,
            id_column=data.id,
            missing=scenario.missing_values,
            matrix=data.matrix,
            label=data.label or "y",  # the default of arrays
            time=data.time,
        )[0].made_dense("a file of clients.joined is read dense")
        for site in described
    ]
    label_names, labels = _labels_with(client_data, tables)
    sizes = [len(table.rows) for table in tables]
    first = len(client_data.names)
    owners = np.repeat(np.arange(first, first + len(sizes)), sizes)
    client_of_row = np.concatenate([client_data.client_of_row, owners])
    ids = [client_data.ids, *(table.ids for table in tables)]
    alike_ids = all(each.dtype.kind == ids[0].dtype.kind for each in ids)
    rows = np.concatenate([np.asarray(client_data.pooled()), *(table.rows for table in tables)])
    dealt = Dealt(rows, client_of_row, first + len(sizes), taken=True)
    read = tuple(replace(table.read_from, client=name) for name, table in zip(names, tables, strict=True))
    return replace(
        client_data,
        names=(*client_data.names, *names),
        held=dealt,
        client_of_row=client_of_row,
        ids=np.concatenate(ids if alike_ids else [each.astype(str) for each in ids]),
        labels=labels,
        label_names=label_names,
        pooled=dealt,
        sources=(*client_data.sources, *read),
        policies=(
            *client_data.policies,
            *(general if site.policy is None else (*general, read_policy(site.policy)) for site in described),
        ),
        gaps=[*client_data.gaps, *(gaps_of(table.rows) for table in tables)] if data.filling else (),
        harmonizing=harmonizing_of(data, layout, present(labels, label_names)),
        target=target_of(data, labels, label_names),
        times=times_with(client_data.times, tables),
    )


def _labels_with(
    client_data: ClientData, tables: Sequence[Table]
) -> tuple[tuple[str, ...], Int64Array | None]:
    """Return the names of the classes, and the class of each row with those of the tables; None without labels.

    Rows of a table without labels are of the class :data:`raydr.data.loading.NO_LABEL`.
    """
    names, known = client_data.label_names, client_data.labels
    if known is None:
        return names, None
    codes = [known]
    for table in tables:
        if table.labels is None and (client_data.target is not None or client_data.kept_classes is not None):
            raise DataError(
                f"{table.name} has no labels for all of its rows, but labels take part in this run"
                " (data.target_weight or data.harmonize.keep): add the column of data.label."
            )
        own = (NO_LABEL,) if table.labels is None else table.label_names
        names += tuple(name for name in own if name not in names)
        place = np.array([names.index(name) for name in own], np.int64)
        codes.append(place[np.zeros(len(table.rows), np.int64) if table.labels is None else table.labels])
    return names, np.concatenate(codes)


def present(labels: Int64Array | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes that occur."""
    return () if labels is None else tuple(names[code] for code in np.unique(labels))


def read_table(
    scenario: Scenario, data_dir: Path | None, rows: int | None = None, progress: Progress = unheard
) -> Table:
    """Read the usable rows of the scenario's table, or a random sample of ``rows`` of them."""
    data = scenario.data
    if data.graph is not None:
        table = load_graph(data.graph, data.dimensions, seed=scenario.seed)
        return table if rows is None else set_apart(table, rows, 0, scenario.seed)[0]
    return load(
        source=data.source,
        path=data.path,
        label=data.label,
        time=data.time,
        features=data.features,
        client=scenario.clients.partition.client_column,
        id_column=data.id,
        rows=rows,
        marks=None if data.holdout is None else data.holdout.column,
        missing=data.missing,
        categories=data.categories,
        threshold=stricter_threshold(data.words.threshold, general_policies(scenario)),
        matrix=data.matrix,
        exclude=data.exclude,
        codebook=codebook_of_data(data),
        join_spellings=scenario.clients.join_spellings,
        cells=scenario.method.surveys_columns,
        seed=scenario.seed,
        data_dir=data_dir,
        sparse=True,
        progress=progress,
    )


def require_excluded(
    excluded: Iterable[str], features: Sequence[str], sources: Sequence[Source], knob: str = "data.exclude"
) -> None:
    """Raise a DataError that names the nearest column if no source has a column that is to be left out."""
    left_out = {column for source in sources for column in source.left_out}
    for column in set(excluded) - left_out:
        require(column, [*features, *sorted(left_out)], knob=knob, where=sources[0].name)


def with_public_file(client_data: ClientData, path: str) -> ClientData:
    """Add the rows of a file as public rows; it must have the columns of the data, in the same units."""
    table = load(path=path, layout=client_data.layout, for_map=False)
    return replace(client_data, public=table.rows, anchors=table.source)


def codebook_of_data(data: DataSettings) -> Codebook | None:
    """Return the codebook of a scenario, or None if it has none."""
    return Codebook(data.codebook) if data.codebook else None
