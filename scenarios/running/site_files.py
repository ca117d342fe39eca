"""Clients with their own files: how a file is read, and the driver's view of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile
from raydr.data.loading import refuse_empty
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.doubtful_words import of_classes
from raydr.data.survey.notices import common_looks, of_columns, of_label, of_measurements
from raydr.data.survey.site_names import of_site_files
from raydr.errors import DataError
from raydr.scenarios.running.client_data import ClientData, codebook_of_data, present, require_excluded
from raydr.scenarios.running.general_policies import general_policies
from raydr.scenarios.running.harmony import harmonizing_of
from raydr.scenarios.running.sparsity import notices_of_sparse_files, why_dense
from raydr.scenarios.running.target import notices_of_target, target_of
from raydr.scenarios.running.times import times_of_sites
from raydr.scenarios.schema.clients import SiteSettings
from raydr.scenarios.schema.data import DataSettings
from raydr.scenarios.schema.scenario import Scenario


class SiteReader(Protocol):
    """Reads clients' own files on their nodes."""

    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
        """Return the columns of all files to map, and how; nothing else of a file is revealed."""

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """Return everything about each file except the rows."""

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Return a callable that brings all rows to its caller, the evaluation."""


def from_sites(scenario: Scenario, reader: SiteReader) -> ClientData:
    """Read sizes and names from the clients' own files; their rows stay where they are.

    Raises
    ------
    DataError
        If the files differ in their features, or only some have labels.
    """
    data, described = scenario.data, scenario.clients.sites
    why = why_dense(scenario)
    general, cells = general_policies(scenario), scenario.method.surveys_columns
    files = [
        (replace(site_file(data, site), why_dense=why, general=general, cells=cells), site.node)
        for site in described
    ]
    layout: Layout | None = None
    if files[0][0].needs_layout:
        layout = reader.lay_out_sites(files)
        files = [(replace(file, layout=layout), node) for file, node in files]
    censuses = reader.count_sites(files)
    first = censuses[0]
    layout = layout or Layout(first.features)
    sources = [census.source for census in censuses]
    require_excluded(data.exclude, first.features, sources)
    require_excluded(Codebook(data.codebook).left_out, first.features, sources, "data.codebook")
    for site, census in zip(described, censuses, strict=True):
        require_same_features(site, census.features, described[0], first.features)
        if (census.labels is None) != (first.labels is None):
            raise DataError(
                f"Only one of {site.path} and {described[0].path} has labels: name the column in data.label."
            )
    if data.filling:
        lacking = np.sum([census.gaps for census in censuses], axis=0)
        refuse_empty(
            first.features, lacking == sum(len(census.ids) for census in censuses), "The sites' data"
        )
    sites = tuple(
        Site(file, node, census.fingerprint) for (file, node), census in zip(files, censuses, strict=True)
    )
    label_names: tuple[str, ...] = ()
    labels = None
    if first.labels is not None:
        names, codes = np.unique(np.concatenate([census.labels for census in censuses]), return_inverse=True)
        label_names, labels = tuple(map(str, names)), codes.astype(np.int64)
    sizes = [len(census.ids) for census in censuses]
    found = None if scenario.noisy else common_looks([census.looks for census in censuses])
    found = None if found is None else of_measurements(found, layout)
    clients = tuple(site.name or Path(site.path).stem for site in described)
    common = (*notices_of_target(data), *notices_of_sparse_files(why, [each.made_dense for each in censuses]))
    return ClientData(
        names=clients,
        held=sites,
        client_of_row=np.repeat(np.arange(len(sizes)), sizes),
        ids=np.concatenate([census.ids for census in censuses]),
        labels=labels,
        label_names=label_names,
        feature_names=tuple(first.features),
        pooled=reader.pool(sites),
        sources=tuple(
            replace(census.source, client=name) for name, census in zip(clients, censuses, strict=True)
        ),
        filling=data.filling,
        gaps=[census.gaps for census in censuses] if data.filling else (),
        words=layout.words,
        units=layout.units,
        codings=layout.codings,
        agreed=layout.agreement,
        harmonizing=harmonizing_of(data, layout, present(labels, label_names)),
        target=target_of(data, labels, label_names),
        times=times_of_sites(data.time, [census.times for census in censuses]),
        looks=found,
        policies=tuple(census.policies for census in censuses),
        notices=common
        if found is None
        else (
            *common,
            *dict.fromkeys(doubt for census in censuses for doubt in census.doubts),
            *of_columns(first.features, found),
            *(of_label(layout.columns) if first.labels is None else of_classes(label_names)),
            *of_site_files(clients),
        ),
    )


def require_same_features(
    site: SiteSettings, features: Sequence[str], other: SiteSettings, expected: Sequence[str]
) -> None:
    """Raise a DataError if a site's features differ from those of another site, or are in a different order."""
    if tuple(features) == tuple(expected):
        return
    odd = sorted(set(features) ^ set(expected))
    raise DataError(
        f"{site.path} and {other.path} have different features ({', '.join(odd[:10])}): name the common ones in"
        " data.features."
        if odd
        else f"{site.path} and {other.path} have the same features in a different order: name them in data.features,"
        f" such as [{', '.join(list(expected)[:10])}]."
    )


def site_file(data: DataSettings, site: SiteSettings) -> SiteFile:
    """Return how to read a client's own file, from the scenario."""
    return replace(file_of_data(data), path=site.path, policy=site.policy)


def file_of_data(data: DataSettings) -> SiteFile:
    """Return how all sites read their files, from the scenario; without a path."""
    return SiteFile(
        path="",
        label=data.label,
        time=data.time,
        features=data.features,
        id_column=data.id,
        missing=data.missing,
        categories=data.categories,
        threshold=data.words.threshold,
        matrix=data.matrix,
        exclude=data.exclude,
        codebook=codebook_of_data(data),
    )
