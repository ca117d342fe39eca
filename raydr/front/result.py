"""A finished run or sweep as an object, which reads its folder when it is asked for something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import OutputError
from raydr.runfolder.records import (
    AUDIT,
    AXES,
    BEST,
    CENTRAL,
    COMPOSITION,
    DATA,
    EMBEDDING,
    LEDGER,
    METRICS,
    PARETO,
    POINTS,
    PRIVACY,
    REPORT,
    SCENARIO,
    SWEEP,
    SWEEP_REPORT,
    TABLE,
    TRIALS,
)

if TYPE_CHECKING:
    from raydr.front.exports import Library
    from raydr.runfolder.joined import Joined


def load(folder: str | Path, *, edited: bool = False) -> Result:
    """Open the folder of a run that is whole, once all its files have been looked through.

    Parameters
    ----------
    folder : str or Path
        A run folder, wherever it lies now and whichever way the run was asked for.
    edited : bool
        Whether to read files that were changed since the run ended.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.OutputError
        If it is no run folder, or one that lacks a file, has one that was changed, or is of an interrupted run.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.load("runs/digits-fed-tsne")  # doctest: +SKIP
    >>> result.embedding.shape  # doctest: +SKIP
    (1797, 2)
    """
    from raydr.runfolder import read_run
    from raydr.runfolder.manifest import edits_accepted

    place = Path(folder).expanduser()
    if (place / SWEEP).is_file() and not (place / SCENARIO).exists():
        raise OutputError(
            f"{folder} is the folder of a sweep, which has many runs: `raydr.SweepResult(Path({str(folder)!r}))` has"
            " its tables, and `.run(trial)` of it a trial's run."
        )
    with edits_accepted() if edited else nullcontext():
        read_run(place)
    return Result(place, edited=edited)


@dataclass(frozen=True)
class Result:
    """A finished run, as its folder has it: what :func:`raydr.run` returns and :func:`raydr.load` opens.

    Rows of arrays are in the order of the table that was mapped; where sites have files of their own, one after the
    other.

    Attributes
    ----------
    folder : Path
        The run folder; everything else is read from it.
    edited : bool
        Whether to read files that were changed since the run ended.
    """

    folder: Path
    edited: bool = field(default=False, repr=False)

    @property
    def embedding(self) -> FloatArray:
        """The federated map, (rows, 2 or 3)."""
        return _places(self._map())

    @property
    def pooled(self) -> FloatArray | None:
        """The map of the pooled data, (rows, 2 or 3); None where the run was not compared with it."""
        return _places(_table(file)) if (file := self._file(CENTRAL)).exists() else None

    @property
    def data(self) -> dict[str, Any]:
        """What was mapped, and what became of the rest: see :class:`raydr.data.provenance.Provenance`."""
        content: dict[str, Any] = self._json(DATA)
        return content

    def released(self, out: str | Path | None = None) -> Path:
        """Write what the run's epsilon covers, and nothing else, to a folder that may be handed out.

        Parameters
        ----------
        out : str or Path, optional
            The new folder; without it ``NAME-released`` next to the run's.

        Returns
        -------
        folder : Path
            With ``released.html``, which lists what is there.

        Raises
        ------
        raydr.errors.OutputError
            If the run has no epsilon, or the new folder exists or cannot be written.
        """
        from raydr.report import write_released

        return write_released(self.folder, None if out is None else Path(out)).parent

    @property
    def joined(self) -> tuple[Joined, ...]:
        """Sites that joined after the run had ended, in their order: see :func:`raydr.join`."""
        from raydr.runfolder.joined import read_joined

        return read_joined(self.folder)

    @property
    def ids(self) -> NDArray[Any]:
        """Identity of each row in its table, (rows,): its number from 0, or what ``data.id`` names."""
        return np.array(self._map()["row"].to_pylist())

    @property
    def sites(self) -> NDArray[np.str_]:
        """Name of each row's client, (rows,)."""
        return np.array(self._map()["client"].to_pylist(), np.str_)

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """Each row's label as text, None where it has none, (rows,); None for data without labels."""
        table = self._map()
        return np.array(table["label"].to_pylist(), object) if "label" in table.column_names else None

    @property
    def clusters(self) -> Int64Array | None:
        """Each row's cluster, (rows,); None for methods that make none."""
        table = self._map()
        return table["cluster"].to_numpy() if "cluster" in table.column_names else None

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that was run, with every key; :func:`raydr.run` takes it."""
        from raydr.documents import parse_yaml

        content: dict[str, Any] = parse_yaml(self._file(SCENARIO).read_text(encoding="utf-8"))
        return content

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """``{"federated": {name: value}, "central": {name: value}}``."""
        content = self._json(METRICS)
        return {side: content[side] for side in ("federated", "central")}

    @property
    def standard_errors(self) -> dict[str, dict[str, float]]:
        """The same of the standard errors of values that a sample of rows was looked at for; empty where none was."""
        content: dict[str, dict[str, float]] = self._json(METRICS).get("standard_errors", {})
        return content

    @property
    def sampled_rows(self) -> int | None:
        """How many rows that sample has; None where metrics looked at all rows."""
        rows: int | None = self._json(METRICS).get("sampled_rows")
        return rows

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """Every kind of message: see :class:`raydr.privacy.ledger.Entry`."""
        content: list[dict[str, Any]] = self._json(LEDGER)
        return content

    @property
    def privacy(self) -> dict[str, Any]:
        """What the run cost: see :class:`raydr.privacy.statement.Statement`; ``epsilon`` is None where infinite."""
        content: dict[str, Any] = self._json(PRIVACY)
        return content

    @property
    def audit(self) -> dict[str, Any] | None:
        """What attacks recovered: see :class:`raydr.attacks.verdicts.Audit`; None where the run was not audited."""
        return self._json(AUDIT) if (self.folder / AUDIT).exists() else None

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.folder / REPORT

    def to_frame(self, library: Library | None = None) -> Any:
        """The map as a data frame, ``row, client, x, y[, z][, cluster][, label][, npa_K]``, a row for each mapped one.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Whose; without it the first of these that is installed.

        Raises
        ------
        ImportError
            If that library is not installed.
        """
        from raydr.front.exports import frame

        return frame(self._map(), library)

    def to_anndata(self, onto: Any = None) -> Any:
        """The map as AnnData, for scanpy, cellxgene and their like; needs the package anndata.

        Parameters
        ----------
        onto : AnnData, optional
            What was mapped, of which a copy gets the map; without it the coordinates are the only variables.

        Returns
        -------
        adata : AnnData
            The map in ``obsm["X_raydr"]``, (rows, 2 or 3). Client, cluster and label in ``obs``, preceded by ``raydr_``
            in a copy of ``onto``, and the colours of each in ``uns["..._colors"]``. In ``uns["raydr"]`` the run's
            scenario as YAML, and its ledger, privacy and metrics as JSON.

        Raises
        ------
        ImportError
            If anndata is not installed.
        raydr.errors.DataError
            If ``onto`` has other rows than the map.
        """
        from raydr.front.exports import anndata

        return anndata(self.folder, self._map(), onto)

    def __repr__(self) -> str:
        """What was mapped and how, and where it lies; of a folder that is gone the place alone."""
        name = f"{type(self).__name__}({str(self.folder)!r})"
        try:
            table, kind = self._map(), self.scenario["method"]["kind"]
        except (OutputError, OSError, KeyError, TypeError, ValueError):
            return name
        count = len(table["client"].unique())
        return f"<{name}: {table.num_rows:,} rows of {count:,} client{'s' * (count > 1)} by {kind}>"

    def _repr_html_(self) -> str:
        from raydr.front.exports import picture

        return picture(self.folder)

    def _map(self) -> Any:
        return _table(self._file(EMBEDDING))

    def _json(self, name: str) -> Any:
        return json.loads(self._file(name).read_text(encoding="utf-8"))

    def _file(self, name: str) -> Path:
        return _checked(self.folder, name, self.edited)


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    Attributes
    ----------
    folder : Path
        The sweep's folder; everything else is read from it.
    edited : bool
        Whether to read files that were changed since the sweep ended.
    """

    folder: Path
    edited: bool = field(default=False, repr=False)

    @property
    def report(self) -> Path:
        """The sweep's page."""
        return self.folder / SWEEP_REPORT

    @property
    def best(self) -> Path:
        """The scenario of the best point, by the first objective; there where a trial is done that has it."""
        return self.folder / BEST

    @property
    def trials(self) -> list[dict[str, Any]]:
        """A row for each trial: point, repeat, status, error, ``set.KEY`` for each swept key, and measures."""
        return self._rows(TRIALS)

    @property
    def points(self) -> list[dict[str, Any]]:
        """A row for each point: mean of each measure over its repeats, and deviation as ``MEASURE.sd``."""
        return self._rows(POINTS)

    @property
    def pareto(self) -> list[dict[str, Any]]:
        """The points that no other beats in all objectives."""
        return self._rows(PARETO)

    @property
    def total(self) -> dict[str, Any] | None:
        """Cost of all runs together (:class:`raydr.privacy.composition.Composition`); None where none is private."""
        path = _checked(self.folder, COMPOSITION, self.edited)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def table(self) -> list[dict[str, Any]]:
        """Of a published table a row for each cell and seed: ``paper``, ``published``, ``default``, ``pooled``."""
        return self._rows(TABLE)

    def run(self, trial: Mapping[str, Any]) -> Result:
        """Return the run of a row of :attr:`trials` that is done."""
        return Result(self.folder / trial["folder"], edited=self.edited)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _table(_checked(self.folder, name, self.edited)).to_pylist()
        return rows


def _checked(folder: Path, name: str, edited: bool) -> Path:
    """Return the path of a file once it is what the manifest of its folder says."""
    from raydr.runfolder.manifest import require_unchanged

    if not edited:
        require_unchanged(folder, name)
    return folder / name


def _table(file: Path) -> Any:
    import pyarrow as pa

    from raydr.parquet_files import read_parquet

    try:
        return read_parquet(file)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OutputError(f"{file} cannot be read as Parquet ({' '.join(str(error).split())}).") from error


def _places(table: Any) -> FloatArray:
    return np.column_stack([table[axis].to_numpy() for axis in AXES if axis in table.column_names])
