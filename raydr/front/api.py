"""Python functions with the same runs, folders and errors as the commands."""

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
        The run folder. It must not exist, or be empty. Default: ``runs/NAME-TIMESTAMP``.
    address : str, optional
        A Ray cluster. Default: ``RAY_ADDRESS``, or the cluster that this process has joined, or a private Ray on this
        machine.
    data_dir : str or Path, optional
        Folder of built-in data sets as ``NAME.npz``. Default: ``RAYDR_DATA``.
    listener : callable
        Receives :mod:`raydr.journal` events during the run.
    verbose : bool
        Whether to show progress, as the command does: bars on a terminal and in a notebook, lines elsewhere.
    **overrides
        Values by key, with ``__`` for the dot: ``method__landmarks=200``, ``seed=1``.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``ScenarioError``, ``DataError`` or ``OutputError`` if the input cannot be used; ``RunError`` if the run started
        and failed.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.run("digits-fed-tsne", data__rows=500, method__rounds=5)  # doctest: +SKIP
    >>> result.metrics["federated"]["npa_10"] <= 1.0  # doctest: +SKIP
    True
    """
    from raydr.scenarios.runner import run as run_scenario
    from raydr.scenarios.schema.reading import read

    with _showing_progress(listener, verbose) as hear_both:
        folder = run_scenario(
            read(scenario, _dotted(overrides)),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=hear_both,
        )
    return Result(folder)


def map(  # noqa: A001  raydr.map
    data: str | Path,
    *,
    site: str | None = None,
    label: str | None = None,
    codebook: str | Path | None = None,
    method: str | None = None,
    tune: bool = False,
    out: str | Path | None = None,
    address: str | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
    **overrides: Any,
) -> Result:
    """Map your own table without a scenario; the run folder keeps the scenario of the run.

    Parameters
    ----------
    data : str or Path
        A file as for ``data.path``, with a column that names the site of each row. Or a folder, or a pattern such as
        ``"data/*.csv"``, with one file per site.
    site : str, optional
        The site column of a single file. Default: a column called site, hospital or similar.
    label : str, optional
        The column of classes. It colours the map, and metrics use it.
    codebook : str or Path, optional
        How each column is read: a CSV file that ``raydr init --codebook`` writes.
    method : str, optional
        A name from ``raydr list methods``. Default: fed-umap.
    tune : bool
        Whether to try five neighbourhood sizes first, with five runs each, and to keep the one whose map has the most
        reliable places: see :mod:`raydr.tune.neighborhood`. The sweep folder is next to the run folder.
    out, address, listener, verbose, **overrides
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`. With ``tune``, also if the method has no neighbourhood, its messages have noise, or the metric
        ``reliable`` has no value.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.map("patients.csv", site="hospital", label="diagnosis")  # doctest: +SKIP
    >>> result.folder / "scenario.yaml"  # doctest: +SKIP
    PosixPath('runs/patients-20250101-120000/scenario.yaml')
    """
    from raydr.front.own_data import own_rows, tuned
    from raydr.scenarios.runner import run as run_scenario

    own, client_data = own_rows(
        data, site=site, label=label, codebook=codebook, method=method, overrides=_dotted(overrides)
    )
    rows = client_data.rows
    del client_data
    with _showing_progress(listener, verbose) as hear_both:
        if tune:
            own, _, _ = tuned(own, rows, out=_path(out), address=address, listener=hear_both)
        folder = run_scenario(own.scenario, out=_path(out), address=address, listener=hear_both)
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
    """Place new rows on the map of a run with its model. No server takes part, and nothing leaves the caller.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    data : str or Path
        A file with the columns of the run, matched by name; label, client and id columns are optional. Or a folder, or
        a pattern such as ``"data/*.parquet"``, with one file per site. A .parquet file is read in parts and may have
        any length.
    out : str or Path
        The .csv or .parquet file to write: ``row, x, y``, for several files ``client``, the file of the row, and
        ``novelty``, the row's p-value for being like the mapped rows, if the method can tell
        (:mod:`raydr.methods.novelty`).
    site : str, optional
        For a run with ``data.harmonize``: the site of the rows, or the column that names it. Default: the run's column.
    listener, verbose
        As for :func:`run`.

    Returns
    -------
    out : Path
        The file.

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` if the folder is not a run folder, its model is damaged, or the file cannot be written;
        ``DataError`` if the rows do not fit; ``ScenarioError`` if the run's method places no new rows.
    """
    from raydr.scenarios.afterwards.transforming import transform as place

    with _showing_progress(listener, verbose) as hear_both:
        place(Path(folder), data, Path(out), site=site, listener=hear_both)
    return Path(out)


def join(
    folder: str | Path,
    data: str | Path,
    *,
    site: str | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Add a site to a finished run: place its rows, record what left the site, and extend the run folder.

    The site sends the same messages about each record as the run's clients did, or places its rows itself. No other
    site takes part, and no mapped row moves. The folder ``joined`` of the run folder has the result, see
    :attr:`Result.joined`.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    data : str or Path
        The site's file, with the columns of the run, matched by name.
    site : str, optional
        The site's name. Default: the name of the file.
    listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result
        The run including the site.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`transform`; also ``DataError`` if the name is taken, and ``RunError`` if the site could not answer.

    Examples
    --------
    >>> import raydr
    >>> run = raydr.join("runs/patients", "new-hospital.csv", site="south")  # doctest: +SKIP
    >>> [entry.what for entry in run.joined[-1].left]  # doctest: +SKIP
    ['how many rows and features a client has', 'the distance of every record to every landmark']
    """
    from raydr.scenarios.afterwards.joining import join as join_run

    with _showing_progress(listener, verbose) as hear_both:
        return Result(join_run(Path(folder), Path(data), site=site, listener=hear_both))


def redraw(
    folder: str | Path,
    data: str | Path,
    *,
    site: str | None = None,
    out: str | Path | None = None,
    address: str | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Run a scenario again with one more site, starting from the map of an earlier run.

    All sites take part, and rows of the earlier map stay near their places. The old run folder does not change.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    data, site
        As for :func:`join`.
    out : str or Path, optional
        The new run folder. Default: ``NAME-with-SITE`` next to the old one.
    address, data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result
        The new run; :attr:`Result.earlier` says how far rows moved.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; also ``DataError`` if the name is taken, and ``ScenarioError`` if the run's method cannot start
        from an earlier map.

    Examples
    --------
    >>> import raydr
    >>> run = raydr.redraw("runs/patients", "new-hospital.csv", site="south")  # doctest: +SKIP
    >>> run.earlier.displacement.median < 0.1  # doctest: +SKIP
    True
    """
    from raydr.scenarios.redrawing import redraw as redraw_run

    new, known = (None if path is None else Path(path) for path in (out, data_dir))
    with _showing_progress(listener, verbose) as hear_both:
        return Result(
            redraw_run(
                Path(folder),
                Path(data),
                site=site,
                out=new,
                address=address,
                data_dir=known,
                listener=hear_both,
            )
        )


def leave(
    folder: str | Path,
    site: str,
    *,
    out: str | Path | None = None,
    address: str | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Repeat a run without one of its sites, and say what remains of that site.

    The new run starts from nothing, so that it depends on nothing of the site. The old run folder does not change.

    Parameters
    ----------
    folder : str or Path
        The run folder.
    site : str
        The site that leaves: a client of the run.
    out : str or Path, optional
        The new run folder. Default: ``NAME-without-SITE`` next to the old one.
    address, data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result
        The new run; :attr:`Result.earlier` has what remains of the site.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; also ``DataError`` if the run has no such site or no other, or its data have changed.

    Examples
    --------
    >>> import raydr
    >>> run = raydr.leave("runs/patients", "south")  # doctest: +SKIP
    >>> [message.what for message in run.earlier.held("record")]  # doctest: +SKIP
    ['the distance of every record to every landmark']
    """
    from raydr.scenarios.leaving import leave as leave_run

    new, data = (None if path is None else Path(path) for path in (out, data_dir))
    with _showing_progress(listener, verbose) as hear_both:
        return Result(
            leave_run(Path(folder), site, out=new, address=address, data_dir=data, listener=hear_both)
        )


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
    """Attack a run with what its server saw, write ``audit.json``, and write the report again.

    The audit repeats the run bit for bit in this process, so it takes at least as long as the run's federation.

    Parameters
    ----------
    folder : str or Path
        A complete run folder.
    attacks : sequence of str
        Names from ``raydr list attacks``. Default: those of the run's scenario, or all.
    public : str or Path, optional
        A file of similar rows that the server knows, with the run's columns. Default: rows of the source that are not
        mapped, or a fifth of the run's rows.
    public_rows : int, optional
        Maximum number of similar rows. Default: ``audit.public_rows`` of the run's scenario.
    data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` if the folder is not a complete run folder or is from another version; ``ScenarioError`` if an
        attack does not exist or the run cannot be repeated; ``DataError`` if the data have changed; ``RunError`` if the
        repetition differs.

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
    settings = auditing.audit_settings(place, attacks, public_rows)
    with _showing_progress(listener, verbose) as hear_both:
        written = auditing.audit(
            place, settings, public=_path(public), data_dir=_path(data_dir), listener=hear_both
        )
    return Result(written)


def stability(
    folder: str | Path,
    *,
    seeds: int = 4,
    without_sites: bool | None = None,
    data_dir: str | Path | None = None,
    listener: Listener = unheard,
    verbose: bool = False,
) -> Result:
    """Tell which places of a run's map stay with other seeds, and with each site left out.

    The run is repeated in this process for each other map, so this takes that many times as long as the run's
    federation. :attr:`Result.stability` has the result, and ``reliability.parquet`` its columns by row.

    Parameters
    ----------
    folder : str or Path
        A complete run folder.
    seeds : int
        Number of maps with other seeds, 0 or more.
    without_sites : bool, optional
        Whether to leave out each site once, at most the 10 largest. Default: if the run has 3 sites or more, and its
        messages do not cost epsilon in each repetition (``private-map``).
    data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    Result

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` if the folder is not a complete run folder, is from another version or cannot be written;
        ``ScenarioError`` if the run cannot be repeated, or the repetitions would exceed ``privacy.epsilon_max``;
        ``DataError`` if the data have changed; ``RunError`` if a repetition fails.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.stability("runs/patients", seeds=2)  # doctest: +SKIP
    >>> result.stability.record.with_seed  # doctest: +SKIP
    31
    """
    from raydr.errors import ScenarioError
    from raydr.scenarios.afterwards.stability import stability as compare_maps

    if seeds < 0:
        raise ScenarioError(f"seeds is {seeds}: give 0 or more.")
    with _showing_progress(listener, verbose) as hear_both:
        written = compare_maps(
            Path(folder),
            seeds=seeds,
            without_sites=without_sites,
            data_dir=_path(data_dir),
            listener=hear_both,
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
    """Resume an interrupted run from its last checkpoint; the result is that of an uninterrupted run, bit for bit.

    Runs with noisy sums that may lose clients are the exception: they draw new noise.

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
        ``OutputError`` if the folder is not an interrupted run; otherwise as :func:`run`.
    """
    from raydr.scenarios.runner import resume as resume_run

    with _showing_progress(listener, verbose) as hear_both:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=_path(data_dir),
            listener=hear_both,
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
    """Run every trial of a sweep with Ray Tune, in parallel if resources allow, and write its folder.

    Parameters
    ----------
    sweep : str, Path or mapping
        A YAML file, the name of a shipped sweep (``raydr list sweeps``), or the content itself.
    quick : bool
        Whether to use its section ``quick``.
    out, address, data_dir, listener, verbose
        As for :func:`run`.
    **overrides
        Values for the base scenario by key, with ``__`` for the dot.

    Returns
    -------
    SweepResult

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; a trial that fails is a row with status "failed" and raises no error.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.sweep("digits-four-axes", quick=True)  # doctest: +SKIP
    >>> {trial["status"] for trial in result.trials}  # doctest: +SKIP
    {'done'}
    """
    from raydr.tune.reading import read_sweep
    from raydr.tune.sweeping import sweep as run_sweep

    with _showing_progress(listener, verbose) as hear_both:
        folder = run_sweep(
            read_sweep(sweep, _dotted(overrides), quick=quick),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=hear_both,
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
    """Run a paper's table, each cell as published and with raydr's defaults: a sweep whose points are the cells.

    Parameters
    ----------
    table : str, Path or mapping
        The name of a table (``raydr list papers``), a YAML file, or the content itself.
    quick : bool
        Whether to use fewer rows and one seed, from its section ``quick``; the resulting table mentions it.
    only : sequence of str
        Names of the only rows, or groups of rows, to run.
    seeds : int, optional
        Number of seeds. Default: the number in the table.
    published : bool
        Whether to also run cells as published.
    out, address, data_dir, listener, verbose, **overrides
        As for :func:`sweep`.

    Returns
    -------
    SweepResult
        Its :attr:`~SweepResult.table` has the cells. :func:`resume_sweep` resumes an interrupted one.

    Raises
    ------
    raydr.errors.RaydrError
        As :func:`run`; a cell that fails has no value and raises no error.

    Examples
    --------
    >>> import raydr
    >>> result = raydr.reproduce("p3-table-4", quick=True)  # doctest: +SKIP
    >>> result.table[0]["paper"], result.table[0]["default"] > 0.6  # doctest: +SKIP
    (0.524, True)
    """
    from raydr.tune.reproducing import read_table
    from raydr.tune.sweeping import sweep as run_sweep

    with _showing_progress(listener, verbose) as hear_both:
        folder = run_sweep(
            read_table(
                table, _dotted(overrides), quick=quick, only=tuple(only), seeds=seeds, published=published
            ),
            out=_path(out),
            address=address,
            data_dir=_path(data_dir),
            listener=hear_both,
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
    """Resume an interrupted sweep: keep finished trials and run the others. The table is the same.

    Parameters
    ----------
    folder : str or Path
        The incomplete sweep folder, ``NAME.incomplete-...``; it may have been moved.
    retry_failed : bool
        Whether to repeat failed trials.
    address, data_dir, listener, verbose
        As for :func:`run`.

    Returns
    -------
    SweepResult

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` if the folder is not an interrupted sweep, or its trials are not those of its sweep.yaml.
    """
    from raydr.tune.sweeping import resume as resume_run

    with _showing_progress(listener, verbose) as hear_both:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=_path(data_dir),
            listener=hear_both,
            retry_failed=retry_failed,
        )
    return SweepResult(whole)


@contextmanager
def session(address: str | None = None) -> Iterator[None]:
    """Keep Ray and the processes of runs for all runs inside a ``with`` block; only the first waits for their start.

    Clients, coordinator and evaluation of a run serve the next one, if it needs as many or fewer.

    Parameters
    ----------
    address : str, optional
        A Ray cluster. Default: ``RAY_ADDRESS``, or a private Ray on this machine, which ends with the block.

    Raises
    ------
    raydr.errors.RaydrError
        ``OutputError`` if there is no cluster at ``address``; ``RunError`` if Ray does not start.

    Examples
    --------
    >>> import raydr
    >>> with raydr.session():  # doctest: +SKIP
    ...     results = [raydr.run("digits-fed-umap", seed=seed) for seed in range(3)]
    """
    from raydr.actors.cluster import connected
    from raydr.actors.idle import kept

    with connected(address), kept():
        yield


def _dotted(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in overrides.items()}


def _path(place: str | Path | None) -> Path | None:
    return Path(place) if place is not None else None


@contextmanager
def _showing_progress(listener: Listener, verbose: bool) -> Iterator[Listener]:
    """Yield a listener that also shows progress if ``verbose``."""
    if not verbose:
        yield listener
        return
    from raydr.front.progress_bars import heard_on_terminal

    with heard_on_terminal() as show:

        def hear(event: Event) -> None:
            listener(event)
            show(event)

        yield hear
