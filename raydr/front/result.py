"""Finished runs and sweeps as objects that read their folders on demand."""

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
    from raydr.runfolder.earlier import EarlierRun
    from raydr.runfolder.joined import Joined
    from raydr.runfolder.stability import Stability


def load(folder: str | Path, *, edited: bool = False) -> Result:
    """Open the folder of a complete run after checking all its files.

    Parameters
    ----------
    folder : str or Path
        A run folder; it may have been moved.
    edited : bool
        Whether to read files that were changed after the run.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.OutputError
        If it is not a run folder, a file is missing or was changed, or the run was interrupted.

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
            f"{folder} is a sweep folder, which has many runs: use `raydr.SweepResult(Path({str(folder)!r}))` for its"
            " tables, and its `.run(trial)` for the run of a trial."
        )
    with edits_accepted() if edited else nullcontext():
        read_run(place)
    return Result(place, edited=edited)


@dataclass(frozen=True)
class Result:
    """A finished run: returned by :func:`raydr.run` and opened by :func:`raydr.load`.

    Rows of arrays are in the order of the mapped table; if each site has a file, the files follow each other.

    Attributes
    ----------
    folder : Path
        The run folder; everything else is read from it.
    edited : bool
        Whether to read files that were changed after the run.
    """

    folder: Path
    edited: bool = field(default=False, repr=False)

    @property
    def embedding(self) -> FloatArray:
        """The federated map, (rows, 2 or 3)."""
        return _places(self._map())

    @property
    def pooled(self) -> FloatArray | None:
        """The map of the pooled data, (rows, 2 or 3); None if the run has none."""
        return _places(_table(file)) if (file := self._file(CENTRAL)).exists() else None

    @property
    def data(self) -> dict[str, Any]:
        """Rows and columns that were mapped or left out: see :class:`raydr.data.provenance.Provenance`."""
        content: dict[str, Any] = self._json(DATA)
        return content

    def released(self, out: str | Path | None = None) -> Path:
        """Write only what the run's epsilon covers, to a folder that you may share.

        Parameters
        ----------
        out : str or Path, optional
            The new folder. Default: ``NAME-released`` next to the run folder.

        Returns
        -------
        folder : Path
            The new folder; its ``released.html`` lists the content.

        Raises
        ------
        raydr.errors.OutputError
            If the run has no epsilon, or the new folder exists or cannot be written.
        """
        from raydr.report import write_released

        return write_released(self.folder, None if out is None else Path(out)).parent

    @property
    def joined(self) -> tuple[Joined, ...]:
        """Sites that joined after the run, in order: see :func:`raydr.join`."""
        from raydr.runfolder.joined import read_joined

        return read_joined(self.folder)

    @property
    def earlier(self) -> EarlierRun | None:
        """Comparison with the run that this one repeats with one site more or less: see :func:`raydr.leave`."""
        from raydr.runfolder.earlier import read_earlier

        return read_earlier(self.folder)

    @property
    def ids(self) -> NDArray[Any]:
        """Identity of each row in its table, (rows,): its number from 0, or its value of ``data.id``."""
        return np.array(self._map()["row"].to_pylist())

    @property
    def sites(self) -> NDArray[np.str_]:
        """Name of each row's client, (rows,)."""
        return np.array(self._map()["client"].to_pylist(), np.str_)

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """Label of each row as text, (rows,), None for a row without one; None for data without labels."""
        table = self._map()
        return np.array(table["label"].to_pylist(), object) if "label" in table.column_names else None

    @property
    def period_of_row(self) -> NDArray[np.str_] | None:
        """Period of each row as text, (rows,); None without ``data.time``."""
        table = self._map()
        return np.array(table["period"].to_pylist(), np.str_) if "period" in table.column_names else None

    @property
    def periods(self) -> list[dict[str, Any]]:
        """Rows, sites, metrics and movement of each period (:class:`raydr.runfolder.records.PeriodMeasures`), in order.

        The list is empty without ``data.time``.
        """
        periods: list[dict[str, Any]] = self._json(METRICS).get("periods", [])
        return periods

    @property
    def clusters(self) -> Int64Array | None:
        """Cluster of each row, (rows,); None if the method makes no clusters."""
        table = self._map()
        return table["cluster"].to_numpy() if "cluster" in table.column_names else None

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario of the run with all keys; :func:`raydr.run` accepts it."""
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
        """Standard errors of metrics that use a sample of the rows, like :attr:`metrics`; empty without a sample."""
        content: dict[str, dict[str, float]] = self._json(METRICS).get("standard_errors", {})
        return content

    @property
    def sampled_rows(self) -> int | None:
        """Number of rows of that sample; None if metrics use all rows."""
        rows: int | None = self._json(METRICS).get("sampled_rows")
        return rows

    @property
    def site_metrics(self) -> list[dict[str, Any]]:
        """Means of metrics over each site's rows (:class:`raydr.runfolder.records.SiteMeasures`), the worst site first.

        Sites with fewer than 10 measured rows are missing.
        """
        sites: list[dict[str, Any]] = self._json(METRICS).get("sites", [])
        return sites

    @property
    def fidelity(self) -> dict[str, dict[str, Any]]:
        """Metrics that the federation estimated without pooling (:class:`raydr.runfolder.records.FidelityMeasures`).

        By source: "query rows" or "recovered distances". The mapping is empty if there are none.
        """
        found: dict[str, dict[str, Any]] = self._json(METRICS).get("fidelity", {})
        return found

    @property
    def islands(self) -> list[dict[str, Any]]:
        """Islands of the federated map (:class:`raydr.runfolder.records.Island`), the largest first.

        The list is empty if none were found or looked for.
        """
        found: list[dict[str, Any]] = self._json(METRICS).get("islands", {}).get("found", [])
        return found

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """Every kind of message: see :class:`raydr.privacy.ledger.Entry`."""
        content: list[dict[str, Any]] = self._json(LEDGER)
        return content

    @property
    def privacy(self) -> dict[str, Any]:
        """Privacy cost of the run: see :class:`raydr.privacy.statement.Statement`; ``epsilon`` is None if infinite."""
        content: dict[str, Any] = self._json(PRIVACY)
        return content

    @property
    def audit(self) -> dict[str, Any] | None:
        """Results of attacks: see :class:`raydr.attacks.verdicts.Audit`; None if the run was not audited."""
        return self._json(AUDIT) if (self.folder / AUDIT).exists() else None

    @property
    def stability(self) -> Stability | None:
        """Which places stay on other maps: see :func:`raydr.stability`; None if maps were not compared."""
        from raydr.runfolder import read_run
        from raydr.runfolder.manifest import edits_accepted

        with edits_accepted() if self.edited else nullcontext():
            return read_run(self.folder).stability

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / REPORT

    def to_frame(self, library: Library | None = None) -> Any:
        """Return the map as a data frame: the columns of ``embedding.parquet`` (docs/scenarios.md).

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Library of the data frame. Default: the first of these that is installed.

        Raises
        ------
        ImportError
            If the library is not installed.
        """
        from raydr.front.exports import frame

        return frame(self._map(), library)

    def to_anndata(self, onto: Any = None) -> Any:
        """Return the map as AnnData, for scanpy, cellxgene and similar tools; needs the package anndata.

        Parameters
        ----------
        onto : AnnData, optional
            The mapped data. A copy of it gets the map. Default: the coordinates are the only variables.

        Returns
        -------
        adata : AnnData
            The map is in ``obsm["X_raydr"]``, (rows, 2 or 3). Client, cluster and label are in ``obs``, with the prefix
            ``raydr_`` in a copy of ``onto``; their colours are in ``uns["..._colors"]``. ``uns["raydr"]`` has the run's
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
        """Return rows, clients, method and folder; only the folder if it cannot be read."""
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
        Whether to read files that were changed after the sweep.
    """

    folder: Path
    edited: bool = field(default=False, repr=False)

    @property
    def report(self) -> Path:
        """Path of the sweep's page."""
        return self.folder / SWEEP_REPORT

    @property
    def best(self) -> Path:
        """Path of the best point's scenario by the first objective; the file exists if a finished trial has a value."""
        return self.folder / BEST

    @property
    def trials(self) -> list[dict[str, Any]]:
        """One row for each trial: point, repeat, status, error, ``set.KEY`` for each swept key, and measures."""
        return self._rows(TRIALS)

    @property
    def points(self) -> list[dict[str, Any]]:
        """One row for each point: the mean of each measure over repeats, and its standard deviation ``MEASURE.sd``."""
        return self._rows(POINTS)

    @property
    def pareto(self) -> list[dict[str, Any]]:
        """The Pareto front: points that no other point beats in all objectives."""
        return self._rows(PARETO)

    @property
    def total(self) -> dict[str, Any] | None:
        """Privacy cost of all runs (:class:`raydr.privacy.composition.Composition`); None if no run is private."""
        path = _checked(self.folder, COMPOSITION, self.edited)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def table(self) -> list[dict[str, Any]]:
        """For a paper's table, one row per cell and seed: ``paper``, ``published``, ``default``, ``pooled``."""
        return self._rows(TABLE)

    def run(self, trial: Mapping[str, Any]) -> Result:
        """Return the run of a finished trial, a row of :attr:`trials`."""
        return Result(self.folder / trial["folder"], edited=self.edited)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _table(_checked(self.folder, name, self.edited)).to_pylist()
        return rows


def _checked(folder: Path, name: str, edited: bool) -> Path:
    """Return the path of a file after checking it against the manifest of its folder."""
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
        raise OutputError(
            f"Cannot read {file} as Parquet ({' '.join(str(error).split())}): bring back the file as the run wrote it."
        ) from error


def _places(table: Any) -> FloatArray:
    return np.column_stack([table[axis].to_numpy() for axis in AXES if axis in table.column_names])
