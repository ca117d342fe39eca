"""Data sizes for a plan. Only what a plan needs is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.data import census
from raydr.data.site import laid_out
from raydr.data.survey.layout import JointColumns
from raydr.data.survey.raw_cells import RawColumn
from raydr.errors import ScenarioError
from raydr.methods.requests import site_policy
from raydr.privacy.ledger import Entry
from raydr.privacy.policy import SitePolicy
from raydr.scenarios.running.client_data import dealt_out, present, with_public_file
from raydr.scenarios.running.column_survey import agreement_on
from raydr.scenarios.running.declared_cost import SAMPLED_NUMBERS, sampled
from raydr.scenarios.running.federation_plan import cells_of
from raydr.scenarios.running.general_policies import general_policies
from raydr.scenarios.running.harmony import harmonizing_of
from raydr.scenarios.running.site_files import require_same_features, site_file
from raydr.scenarios.running.site_policies import (
    policies_of,
    refusals_of_data,
    refusals_of_method,
    shown_names,
    without_hidden_names,
)
from raydr.scenarios.running.sparsity import why_dense
from raydr.scenarios.running.target import target_of
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import SparseRows, stacked
from raydr.statistics.harmonizing import Harmonizing
from raydr.statistics.scaling import NOTHING_JOINT
from raydr.statistics.steering import Target


@dataclass(kw_only=True, frozen=True)
class DataSizes:
    """Sizes of the clients' data.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order; empty if unknown.
    features : int
        Number of features; 0 if unknown.
    itemsize : float
        Bytes of one number; of a sparse table, bytes of what is stored over all numbers.
    sample : (rows, features) array
        All rows; of large tables a sample, with the largest and smallest value of each feature.
    whole : bool
        Whether the sample has all rows.
    labelled : bool
        Whether the rows have classes.
    public : (rows, features) array or None
        Public rows.
    names : tuple of str
        Names of the clients.
    nodes : tuple of (str or None)
        Node of each client's file; empty if the driver deals the rows.
    unknown : tuple of str
        One sentence for each fact that is unknown on this machine.
    read : int
        Rows that the driver reads before it samples or separates some; 0 if it keeps all.
    held_out : int
        Rows that are placed on the finished map.
    agreement : tuple of Entry
        Ledger entries for the messages in which clients agree on columns and words.
    joint : JointColumns
        Columns of several features that count as one.
    cells : tuple of RawColumn or None
        Columns that a noisy survey prepares; None without a survey.
    sparse : bool
        Whether the rows stay sparse.
    harmonizing : Harmonizing or None
        How sites are adjusted to each other.
    target : Target or None
        The label, if it takes part in distances.
    public_targets : (public rows,) float64 or None
        Labels of the public rows, as ``target`` numbers them.
    policies : tuple of SitePolicy
        Policy of each client's site; empty if no site has one.
    refused : tuple of (str, str)
        What policies do not allow before any message: the site, and a sentence.
    """

    sizes: tuple[int, ...]
    features: int
    itemsize: float
    sample: FloatArray
    whole: bool
    labelled: bool
    public: FloatArray | None = None
    names: tuple[str, ...] = ()
    nodes: tuple[str | None, ...] = ()
    unknown: tuple[str, ...] = ()
    read: int = 0
    held_out: int = 0
    agreement: tuple[Entry, ...] = ()
    harmonizing: Harmonizing | None = None
    target: Target | None = None
    public_targets: Float64Array | None = None
    joint: JointColumns = NOTHING_JOINT
    cells: tuple[RawColumn, ...] | None = None
    sparse: bool = False
    policies: tuple[SitePolicy, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of all clients."""
        return sum(self.sizes)

    @property
    def known(self) -> bool:
        """Whether the numbers of rows and features are known."""
        return bool(self.sizes)


def sizes_of_data(scenario: Scenario, data_dir: Path | None) -> DataSizes:
    """Read the data sizes of a scenario for a plan.

    Raises
    ------
    ScenarioError, DataError
        If the scenario cannot use the data.
    """
    if scenario.clients.deployed:
        return _unknown(
            scenario.clients.deployed,
            "The rows are at the sites, which read their own files: `raydr site dry-run` says at a site what would"
            " leave it. To plan the whole run, plan the simulation with clients.sites.",
        )
    if scenario.clients.sites:
        return _of_sites(scenario)
    client_data = without_hidden_names(dealt_out(scenario, data_dir))
    rows = client_data.pooled()
    scenario.require_clients(len(client_data.names))
    scenario.method.check(client_data.rows, client_data.features)
    public = scenario.method.public_file
    if public is not None:
        client_data = with_public_file(client_data, public)
    return DataSizes(
        sizes=tuple(
            int(count) for count in np.bincount(client_data.client_of_row, minlength=len(client_data.names))
        ),
        features=client_data.features,
        itemsize=rows.nbytes / max(1, rows.size),
        sparse=isinstance(rows, SparseRows),
        sample=sampled(rows, scenario.seed),
        whole=rows.size <= SAMPLED_NUMBERS,
        labelled=client_data.labels is not None,
        public=client_data.public,
        names=client_data.names,
        read=max(0, *(source.rows for source in client_data.sources))
        if scenario.method.offers("public_rows") or client_data.held_out is not None
        else 0,
        held_out=0 if client_data.held_out is None else len(client_data.held_out.rows),
        agreement=agreement_on(client_data.agreed, len(client_data.names)),
        harmonizing=client_data.harmonizing,
        target=client_data.target,
        public_targets=client_data.public_targets,
        joint=client_data.layout.joint,
        policies=policies_of(client_data),
        refused=tuple((site, str(error)) for site, error in refusals_of_data(scenario, client_data)),
        cells=cells_of(scenario, client_data.layout),
    )


def resized(data: DataSizes, rows: int) -> DataSizes:
    """Return the sizes for this many rows of the same kind, with the same share for each client.

    Rows that are read but not mapped, and held-out rows, grow in proportion.

    Raises
    ------
    ScenarioError
        If the number of rows is unknown, or a client would have no rows.
    """
    if not data.known:
        raise ScenarioError(
            "--rows needs data on this machine, but these are elsewhere: name a file with similar rows in data.path."
        )
    ends = (np.cumsum((0, *data.sizes)) * (rows / data.rows)).round().astype(int)
    sizes = tuple(map(int, np.diff(ends)))
    if any(now == 0 < then for now, then in zip(sizes, data.sizes, strict=True)):
        raise ScenarioError(
            f"--rows {rows} leaves some of the {len(sizes)} clients without rows: choose a larger number."
        )
    larger = rows / data.rows
    return replace(
        data,
        sizes=sizes,
        whole=False,
        read=round(data.read * larger),
        held_out=round(data.held_out * larger),
    )


def _unknown(names: tuple[str, ...], why: str, nodes: tuple[str | None, ...] = ()) -> DataSizes:
    """Return data sizes of sites whose rows are elsewhere."""
    return DataSizes(
        sizes=(),
        features=0,
        itemsize=4,
        sample=np.zeros((0, 0), np.float32),
        whole=False,
        labelled=False,
        names=names,
        nodes=nodes,
        unknown=(why,),
    )


def _of_sites(scenario: Scenario) -> DataSizes:
    """Return the sizes of clients' own files; if one cannot be read here, sizes are unknown."""
    data, sites = scenario.data, scenario.clients.sites
    names = tuple(site.name or Path(site.path).stem for site in sites)
    nodes = tuple(site.node for site in sites)
    away = [site for site in sites if not Path(site.path).expanduser().is_file()]
    if away:
        where = f"{away[0].path}" + (f" and {len(away) - 1} more" if len(away) > 1 else "")
        return _unknown(
            names,
            f"The rows of {where} are on another machine, so messages and memory for rows are unknown: run the plan"
            " where the files are, or plan with a table of the same size.",
            nodes,
        )
    general, cells = general_policies(scenario), scenario.method.surveys_columns
    files = [
        replace(site_file(data, site), why_dense=why_dense(scenario), general=general, cells=cells)
        for site in sites
    ]
    own = [file.policies for file in files]
    names = shown_names(names, own)
    policies = tuple(map(site_policy, own, names)) if any(own) else ()
    if files[0].needs_layout:
        layout = laid_out(files[0], [file.survey() for file in files])
        files = [replace(file, layout=layout) for file in files]
    tables = [file.read() for file in files]
    first = census(files[0])
    for site, table in zip(sites, tables, strict=True):
        require_same_features(site, table.features, sites[0], first.features)
    rows = stacked([table.rows for table in tables])
    classes = {name for table in tables for name in present(table.labels, table.label_names)}
    scenario.method.check(len(rows), rows.shape[1])
    return DataSizes(
        sizes=tuple(len(table.rows) for table in tables),
        features=rows.shape[1],
        itemsize=rows.nbytes / max(1, rows.size),
        sparse=isinstance(rows, SparseRows),
        sample=sampled(rows, scenario.seed),
        whole=rows.size <= SAMPLED_NUMBERS,
        labelled=first.labels is not None,
        agreement=agreement_on(files[0].layout.agreement, len(sites)) if files[0].layout is not None else (),
        harmonizing=harmonizing_of(data, tables[0].layout, sorted(classes)),
        target=target_of(
            data, np.arange(len(classes)) if first.labels is not None else None, sorted(classes)
        ),
        joint=tables[0].layout.joint,
        cells=cells_of(scenario, tables[0].layout),
        names=names,
        policies=policies,
        refused=tuple((site, str(error)) for site, error in refusals_of_method(scenario, policies)),
        nodes=nodes,
        unknown=(
            ("All files of sites were read on this machine.",) if any(site.node for site in sites) else ()
        ),
    )
