"""Places new rows on the map of a finished run."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Table, load
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.methods import METHODS
from raydr.scaling import Scaling, scale_rows
from raydr.scenarios.folder import read_model, unwritable
from raydr.scenarios.reading import read
from raydr.scenarios.schema import ByColumn, Scenario


def transform(folder: Path, data: Path, out: Path) -> Path:
    """Place the rows of a file on a run's map, and write where they are.

    Parameters
    ----------
    folder : Path
        The run folder.
    data : Path
        A file with the run's features, in its order.
    out : Path
        A .csv or .parquet file: ``row, x, y``.

    Returns
    -------
    out : Path

    Raises
    ------
    ScenarioError
        If the run's method places no new rows.
    DataError
        If the file cannot be used, or has another number of features.
    OutputError
        If the folder is no run's, or the file cannot be written.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise OutputError(
            f"The map of new rows is written as .csv or .parquet, not {out.suffix!r}: name such a file."
        )
    if not (folder / "scenario.yaml").is_file():
        raise OutputError(
            f"{folder} is not a run folder: it has no scenario.yaml. Give the folder that a run wrote."
        )
    scenario = read(folder / "scenario.yaml")
    place = METHODS[scenario.method.kind].transform
    if place is None:
        able = ", ".join(name for name, method in METHODS.items() if method.transform is not None)
        raise ScenarioError(
            f"Maps of method.kind {scenario.method.kind!r} take no new rows. Maps of these do: {able}."
        )
    model = read_model(folder / "model")
    table = _table(scenario, data)
    features = len(model["shift"])
    if table.rows.shape[1] != features:
        raise DataError(
            f"{data} has {table.rows.shape[1]} features, and the run in {folder} was of {features}: give the same"
            " columns, in the same order, or name them in the scenario's data.features."
        )
    shift, factor = (np.asarray(model[name], np.float64) for name in ("shift", "factor"))
    scaling = Scaling(shift, factor, scenario.data.scale == "unit")
    rows = table.rows if scenario.data.scale == "none" else scale_rows(table.rows, scaling)
    with unwritable(out.parent):
        _write(out, table, place(scenario.method, model, rows))
    return out


def _table(scenario: Scenario, path: Path) -> Table:
    """The new rows; label, client and id columns of the run's data are left out where they are there."""
    data, partition = scenario.data, scenario.clients.partition
    client = partition.column if isinstance(partition, ByColumn) else None
    first: DataError | None = None
    for label, owner, identity in product(*({column, None} for column in (data.label, client, data.id))):
        try:
            return load(
                path=path,
                label=label,
                client=owner,
                id_column=identity,
                features=data.features,
                missing=data.missing,
                for_map=False,
            )
        except DataError as error:
            first = first or error
    raise first if first is not None else DataError(f"{path} cannot be read.")


def _write(out: Path, table: Table, places: FloatArray) -> None:
    import pyarrow as pa

    axes = {axis: places[:, index] for index, axis in enumerate("xyz"[: places.shape[1]])}
    columns = pa.table({"row": table.ids, **axes})
    if out.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(columns, out)
    else:
        from pyarrow import parquet

        parquet.write_table(columns, out)
