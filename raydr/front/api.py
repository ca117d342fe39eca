"""raydr from Python: the same runs, the same folders, the same errors as from the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raydr.front.result import Result, SweepResult
from raydr.journal import Event, Listener, unheard


def run(
    scenario: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    address: str | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
    **overrides: Any,
) -> Result:
    """Run one scenario and write its run folder.

    Parameters
    ----------
    scenario : str, Path or mapping
        A YAML file, the name of a shipped scenario (``raydr list scenarios``), or the content itself.
    out : str or Path, optional
        The run folder; ``runs/NAME-TIMESTAMP`` without it. Must not exist, or be empty.
    address : str, optional
        A Ray cluster; the environment's ``RAY_ADDRESS`` without it. Without either, a Ray is started on this machine,
        closed to others, unless this process has joined one.
    data_dir : str or Path, optional
        Folder of built-in data sets as ``NAME.npz``; the environment's ``RAYDR_DATA`` without it.
    listener : callable
        Hears :mod:`raydr.journal` events as they come.
    verbose : bool
        Show how far the run is, as the command does: bars on a terminal and in a notebook, lines elsewhere.
    **overrides
        Values by key, with ``__`` for the dot: ``method__landmarks=200``, ``seed=1``.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``ScenarioError``, ``DataError`` or ``OutputError`` for what cannot be used, ``RunError`` for a run that
        started and failed.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.run("digits-fed-tsne", data__rows=500, method__rounds=5)  # doctest: +SKIP
    >>> result.metrics["federated"]["npa_10"] <= 1.0  # doctest: +SKIP
    True
    """
    from raydr.scenarios.runner import run as run_scenario
    from raydr.scenarios.schema.reading import read

    with _hearing(listener, verbose) as heard:
        folder = run_scenario(
            read(scenario, _dotted(overrides)),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=heard,
        )
    return Result(folder)


def map(  # noqa: A001  raydr.map
    data: str | Path,
    *,
    site: str | None = None,
    label: str | None = None,
    method: str | None = None,
    out: str | Path | None = None,
    address: str | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
    **overrides: Any,
) -> Result:
    """Map own data: read them, see what they are, run, and leave the scenario that was run in the run folder.

    Parameters
    ----------
    data : str or Path
        A file as ``data.path`` names one, whose rows are dealt to sites by a column; or a folder, or a pattern such as
        ``"data/*.csv"``, with a file for each site, which are read where they lie.
    site : str, optional
        Of one file the column that says whose a row is; without it, one that is called site, hospital or the like.
    label : str, optional
        The column of classes, by which the map is coloured and judged.
    method : str, optional
        A kind of ``raydr list methods``; fed-umap without it.
    out, address, listener, verbose, **overrides
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.map("patients.csv", site="hospital", label="diagnosis")  # doctest: +SKIP
    >>> result.folder / "scenario.yaml"  # doctest: +SKIP
    PosixPath('runs/patients-20250101-120000/scenario.yaml')
    """
    from raydr.front.own_data import own_data
    from raydr.scenarios.runner import run as run_scenario

    taken = own_data(data, site=site, label=label, method=method, overrides=_dotted(overrides))
    with _hearing(listener, verbose) as heard:
        folder = run_scenario(taken.scenario, out=_path(out), address=address, listener=heard)
    return Result(folder)


def transform(
    folder: str | Path,
    data: str | Path,
    *,
    out: str | Path,
    site: str | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Path:
    """Place new rows on the map of a run, by its model alone: no server is asked, and nothing leaves the caller.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    data : str or Path
        A file with the run's columns, which are found by name, in whatever order; its label, client and id columns
        may be there or not. Or a folder, or a pattern such as ``"data/*.parquet"``, with a file for each site. A
        .parquet file is read a part at a time, so that it may be of any length.
    out : str or Path
        The .csv or .parquet file to write: ``row, x, y``; of several files also ``client``, which one a row is of.
    site : str, optional
        Of a run that adjusted sites to each other (``data.harmonize``): the site whose rows these are, or the column
        that says so; without it the run's own column.
    listener, verbose
        As for :func:`run`.

    Returns
    -------
    out : Path
        The file.

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` for what is no run folder, has a damaged model or cannot be written, ``DataError`` for rows
        that do not fit,
        ``ScenarioError`` for a run whose method places no new rows.
    """
    from raydr.scenarios.afterwards.transforming import transform as place

    with _hearing(listener, verbose) as heard:
        return place(Path(folder), data, Path(out), site=site, listener=heard)


def join(
    folder: str | Path,
    data: str | Path,
    *,
    site: str | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Have a site join a finished run: place its rows, say what left it, and extend the run folder by it.

    The site posts what the run's clients posted of each record, or places its rows at home; nobody else is asked, and
    no row that was mapped moves. What comes of it lies in the run folder under ``joined``, see :attr:`Result.joined`.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    data : str or Path
        The site's file, with the run's columns, which are found by name, in whatever order.
    site : str, optional
        The site's name; that of the file without it.
    listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result
        The run, with the site.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`transform`; ``DataError`` also for a name that is taken, ``RunError`` where the site could not answer.

    Examples
    --------
    >>> import raydr
    >>> run = raydr.join("runs/patients", "new-hospital.csv", site="south")  # doctest: +SKIP
    >>> [entry.what for entry in run.joined[-1].left]  # doctest: +SKIP
    ['how many rows and features a client has', 'the distance of every record to every landmark']
    """
    from raydr.scenarios.afterwards.joining import join as join_run

    with _hearing(listener, verbose) as heard:
        return Result(join_run(Path(folder), Path(data), site=site, listener=heard))


def audit(
    folder: str | Path,
    attacks: Sequence[str] = (),
    *,
    public: str | Path | None = None,
    public_rows: int | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Attack a run with what its server saw, write its ``audit.json``, and make its report again.

    The run is repeated in this process, to the bit, so it takes as long as the run's federation once more.

    Parameters
    ----------
    folder : str or Path
        A whole run folder.
    attacks : sequence of str
        Names as in ``raydr list attacks``; without any, those of the run's scenario, or all.
    public : str or Path, optional
        A file of rows of like data, with the run's columns, that the server is given; without it, rows of the source
        that are not mapped, or a fifth of the run's own.
    public_rows : int, optional
        How many rows of like data, at most; ``audit.public_rows`` of the run's scenario without it.
    data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` for what is no whole run folder or was made by another version, ``ScenarioError`` for attacks
        that there are not and runs that cannot be repeated, ``DataError`` for data that are not the run's any more,
        ``RunError`` for a repetition that came out otherwise.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.audit("runs/digits-sense", ["trilateration"])  # doctest: +SKIP
    >>> [verdict["errors"]["exact"] for verdict in result.audit["verdicts"]]  # doctest: +SKIP
    [1.0]
    """
    from raydr.errors import ScenarioError
    from raydr.scenarios.afterwards import auditing

    place = Path(folder)
    if public_rows is not None and public_rows < 0:
        raise ScenarioError(f"public_rows is {public_rows}: give 0 or more.")
    settings = auditing.asked(place, attacks, public_rows)
    with _hearing(listener, verbose) as heard:
        written = auditing.audit(
            place, settings, public=_path(public), data_dir=_path(data_dir), listener=heard
        )
    return Result(written)


def resume(
    folder: str | Path,
    *,
    address: str | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Go on with an interrupted run from its last checkpoint, to the bits of a run that was never interrupted.

    Parameters
    ----------
    folder : str or Path
        The incomplete run folder, ``NAME.incomplete-...``.
    address, data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` for a folder that is no interrupted run, otherwise as :func:`run`.
    """
    from raydr.scenarios.runner import resume as resume_run

    with _hearing(listener, verbose) as heard:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=_path(data_dir),
            listener=heard,
        )
    return Result(whole)


def sweep(
    sweep: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    address: str | None = None,
    data_dir: str | Path | None = None,
    quick: bool = False,
    listener: Listener = unheard,
    verbose: bool = False,
    **overrides: Any,
) -> SweepResult:
    """Run every trial of a sweep by Ray Tune, side by side where there is room, and write its folder.

    Parameters
    ----------
    sweep : str, Path or mapping
        A YAML file, the name of a shipped sweep (``raydr list sweeps``), or the content itself.
    quick : bool
        Whether to take what its section ``quick`` says.
    out, address, data_dir, listener, verbose
        As for :func:`run`.
    **overrides
        Values of the base scenario by key, with ``__`` for the dot.

    Returns
    -------
    SweepResult

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; a trial that fails is a row, and no error.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.sweep("digits-four-axes", quick=True)  # doctest: +SKIP
    >>> {trial["status"] for trial in result.trials}  # doctest: +SKIP
    {'done'}
    """
    from raydr.tune.reading import read_sweep
    from raydr.tune.sweeping import sweep as run_sweep

    with _hearing(listener, verbose) as heard:
        folder = run_sweep(
            read_sweep(sweep, _dotted(overrides), quick=quick),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=heard,
        )
    return SweepResult(folder)


def reproduce(
    table: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    address: str | None = None,
    data_dir: str | Path | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    seeds: int | None = None,
    published: bool = True,
    listener: Listener = unheard,
    verbose: bool = False,
    **overrides: Any,
) -> SweepResult:
    """Run a paper's table, each cell as published and by raydr's defaults: a sweep whose points are the cells.

    Parameters
    ----------
    table : str, Path or mapping
        The name of a table (``raydr list papers``), a YAML file, or the content itself.
    quick : bool
        Whether to take fewer rows and one seed, as its section ``quick`` says; the table says so.
    only : sequence of str
        Names of rows, or of groups of rows, to run alone.
    seeds : int, optional
        How many; without it, as many as the table says.
    published : bool
        Whether cells are also run as published.
    out, address, data_dir, listener, verbose, **overrides
        As for :func:`sweep`.

    Returns
    -------
    SweepResult
        Whose :attr:`~SweepResult.table` has the cells; :func:`resume_sweep` goes on with one that was interrupted.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; a cell that fails is a cell without a value, and no error.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.reproduce("p3-table-4", quick=True)  # doctest: +SKIP
    >>> result.table[0]["paper"], result.table[0]["default"] > 0.6  # doctest: +SKIP
    (0.524, True)
    """
    from raydr.tune.reproducing import read_table
    from raydr.tune.sweeping import sweep as run_sweep

    with _hearing(listener, verbose) as heard:
        folder = run_sweep(
            read_table(
                table, _dotted(overrides), quick=quick, only=tuple(only), seeds=seeds, published=published
            ),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=heard,
        )
    return SweepResult(folder)


def resume_sweep(
    folder: str | Path,
    *,
    address: str | None = None,
    data_dir: str | Path | None = None,
    retry_failed: bool = False,
    listener: Listener = unheard,
    verbose: bool = False,
) -> SweepResult:
    """Go on with an interrupted sweep: trials that ended stay, the others run, and the table is the same.

    Parameters
    ----------
    folder : str or Path
        The incomplete sweep folder, ``NAME.incomplete-...``, wherever it lies now.
    retry_failed : bool
        Whether trials that failed run again.
    address, data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    SweepResult

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` for a folder that is no interrupted sweep, or whose trials are not those of its sweep.yaml.
    """
    from raydr.tune.sweeping import resume as resume_run

    with _hearing(listener, verbose) as heard:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=_path(data_dir),
            listener=heard,
            retry_failed=retry_failed,
        )
    return SweepResult(whole)


def _dotted(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in overrides.items()}


def _path(place: str | Path | None) -> Path | None:
    return Path(place) if place is not None else None


@contextmanager
def _hearing(listener: Listener, verbose: bool) -> Iterator[Listener]:
    """The listener, and where that is asked for what a command shows beside it."""
    if not verbose:
        yield listener
        return
    from raydr.front.progress_bars import heard_on_terminal

    with heard_on_terminal() as show:

        def hear(event: Event) -> None:
            listener(event)
            show(event)

        yield hear
