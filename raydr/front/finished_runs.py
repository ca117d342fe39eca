"""Functions on finished runs: place new rows, add, remove and attack, and compare with repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from raydr.front.api import path_of, showing_progress
from raydr.front.result import Result
from raydr.journal import Listener, unheard


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

    with showing_progress(listener, verbose) as hear_both:
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

    with showing_progress(listener, verbose) as hear_both:
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
    with showing_progress(listener, verbose) as hear_both:
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
    with showing_progress(listener, verbose) as hear_both:
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
    with showing_progress(listener, verbose) as hear_both:
        written = auditing.audit(
            place, settings, public=path_of(public), data_dir=path_of(data_dir), listener=hear_both
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
    with showing_progress(listener, verbose) as hear_both:
        written = compare_maps(
            Path(folder),
            seeds=seeds,
            without_sites=without_sites,
            data_dir=path_of(data_dir),
            listener=hear_both,
        )
    return Result(written)
