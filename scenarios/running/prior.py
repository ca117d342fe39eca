"""The earlier run from which a run starts: its places, row by row, and its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, ScenarioError
from raydr.federation.context import Prior
from raydr.runfolder import read_run
from raydr.runfolder.model import read_model
from raydr.runfolder.records import ARRAYS, EMBEDDING, ENCODER
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.pooling import by_client
from raydr.scenarios.schema.scenario import Scenario


def prior_of(scenario: Scenario, client_data: ClientData) -> Prior | None:
    """Return the state of the earlier run for the rows of the clients, in client order; None without one.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder.
    ScenarioError
        If the earlier run has another method or another number of dimensions.
    DataError
        If the two runs have other columns, or no row in common.
    """
    if scenario.prior is None:
        return None
    run, method = read_run(Path(scenario.prior)), scenario.method
    kind = run.section("method").get("kind")
    if kind != method.kind:
        raise ScenarioError(
            f"prior names a run of method.kind {kind!r}, and this run has {method.kind!r}: choose a run of the same"
            " method."
        )
    wanted = getattr(method, "dimensions", 2)
    if run.dimensions != wanted:
        raise ScenarioError(
            f"prior names a map of {run.dimensions} dimensions, and method.dimensions is {wanted}: choose the same."
        )
    if run.data.columns != client_data.feature_names:
        raise DataError(
            f"The run in {run.path} has other columns than these data, so it cannot be the prior."
        )
    before = {
        (client, str(row)): place
        for client, row, place in zip(run.clients, run.rows, run.federated, strict=True)
    }
    nowhere = np.full(run.dimensions, np.nan)
    owners = client_data.client_of_row
    places = np.array(
        [
            before.get((client_data.names[owner], str(row)), nowhere)
            for owner, row in zip(owners.tolist(), client_data.ids.tolist(), strict=True)
        ]
    )
    if np.isnan(places).all():
        raise DataError(
            f"The run in {run.path} has no row in common with these data, so it cannot be the prior."
        )
    return Prior(places[by_client(owners)], read_model(run.path).arrays)


def prior_digest(folder: Path) -> str:
    """Return what identifies the state of an earlier run."""
    files = (folder / name for name in (EMBEDDING, ARRAYS, ENCODER))
    return " ".join(sha256_of_file(file) for file in files if file.is_file())
