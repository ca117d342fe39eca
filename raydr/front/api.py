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

    with showing_progress(listener, verbose) as hear_both:
        folder = run_scenario(
            read(scenario, _dotted(overrides)),
            out=path_of(out),
            address=address,
            data_dir=path_of(data_dir),
            listener=hear_both,
        )
    return Result(folder)


def map(  # noqa: A001  raydr.map
    data: str | Path,
    *,
    site: str | None = None,
    label: str | None = None,
    time: str | None = None,
    codebook: str | Path | None = None,
    method: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
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
    time : str, optional
        The column of dates, years or visits. All periods are on one map, with a table by period.
    codebook : str or Path, optional
        How each column is read: a CSV file that ``raydr init --codebook`` writes.
    method : str, optional
        A name from ``raydr list methods``. Default: fed-umap, or private-map with ``epsilon``.
    epsilon : float, optional
        Draw a map under differential privacy by record, with this epsilon for the whole run, from raw columns to
        places: docs/private-map.md.
    delta : float, optional
        Delta of that epsilon. Default: 1e-5.
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
        data,
        site=site,
        label=label,
        time=time,
        codebook=codebook,
        method=method,
        epsilon=epsilon,
        delta=delta,
        overrides=_dotted(overrides),
    )
    rows = client_data.rows
    del client_data
    with showing_progress(listener, verbose) as hear_both:
        if tune:
            own, _, _ = tuned(own, rows, out=path_of(out), address=address, listener=hear_both)
        folder = run_scenario(own.scenario, out=path_of(out), address=address, listener=hear_both)
    return Result(folder)


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

    with showing_progress(listener, verbose) as hear_both:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=path_of(data_dir),
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

    with showing_progress(listener, verbose) as hear_both:
        folder = run_sweep(
            read_sweep(sweep, _dotted(overrides), quick=quick),
            out=path_of(out),
            address=address,
            data_dir=path_of(data_dir),
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
        Names of the only rows, groups of rows or columns to run.
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

    with showing_progress(listener, verbose) as hear_both:
        folder = run_sweep(
            read_table(
                table, _dotted(overrides), quick=quick, only=tuple(only), seeds=seeds, published=published
            ),
            out=path_of(out),
            address=address,
            data_dir=path_of(data_dir),
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

    with showing_progress(listener, verbose) as hear_both:
        whole = resume_run(
            Path(folder),
            address=address,
            data_dir=path_of(data_dir),
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


def path_of(place: str | Path | None) -> Path | None:
    """Return a path, or None."""
    return Path(place) if place is not None else None


@contextmanager
def showing_progress(listener: Listener, verbose: bool) -> Iterator[Listener]:
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
