"""Commands on run folders: report, compare, audit, stability, transform, join, leave, bounds."""

from __future__ import annotations

from pathlib import Path

import click

from raydr.front import options


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--released",
    is_flag=True,
    help="Write only what the run's epsilon covers, to a folder that you may share.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder of --released. Default: FOLDER-released."
)
@options.edited
def report(folder: Path, released: bool, out: Path | None) -> None:
    """Write the report and picture of a run folder again, or the page of a sweep folder."""
    from raydr.errors import ScenarioError
    from raydr.report import (
        write_paper_report,
        write_picture,
        write_released,
        write_report,
        write_sweep_report,
    )
    from raydr.runfolder import is_sweep
    from raydr.runfolder.reading import read_unplaced
    from raydr.runfolder.records import TABLE

    if out is not None and not released:
        raise ScenarioError("--out names the folder of --released: give both, or leave out --out.")
    if released:
        if is_sweep(folder):
            raise ScenarioError(
                f"{folder} is a sweep folder, and metrics of the raw data chose its best point: give the run folder of"
                " one trial, and state the epsilon of all trials with it."
            )
        click.echo(write_released(folder, out))
        return
    if is_sweep(folder):
        page = write_sweep_report(folder)
        click.echo(write_paper_report(folder) if (folder / TABLE).exists() else page)
        return
    if read_unplaced(folder) is None:
        write_picture(folder)
    click.echo(write_report(folder))


@click.command()
@click.argument("folders", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Also write a page with the maps side by side.")
@options.edited
def compare(folders: tuple[Path, ...], out: Path | None) -> None:
    """Compare run folders: metrics, time, bytes, memory."""
    from raydr.front.terminal import print_comparison
    from raydr.report import compare as compare_runs
    from raydr.report import write_comparison

    page = write_comparison(folders, out) if out is not None else None
    print_comparison(compare_runs(folders))
    if page is not None:
        click.echo(page)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    metavar="NAME",
    help="Run only this attack of `raydr list attacks`. Repeatable.",
)
@click.option(
    "--public", type=click.Path(path_type=Path), help="A file of similar public rows that the server knows."
)
@click.option(
    "--public-rows", type=click.IntRange(min=0), help="Maximum number of public rows. Default: 10000."
)
@options.data_dir
@options.quiet()
@options.edited
def audit(
    folder: Path,
    attacks: tuple[str, ...],
    public: Path | None,
    public_rows: int | None,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Attack the run folder RUN with what its server saw, and compare the result with guessing.

    The audit repeats the run bit for bit in this process. It writes audit.json and the report again.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_audit
    from raydr.runfolder import read_audit
    from raydr.runfolder.records import REPORT
    from raydr.scenarios.afterwards import auditing

    settings = auditing.audit_settings(folder, attacks, public_rows)
    with heard_on_terminal(quiet=quiet) as listener:
        written = auditing.audit(folder, settings, public=public, data_dir=data_dir, listener=listener)
    found = read_audit(written)
    if not quiet and found is not None:
        print_audit(found)
    click.echo(written / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--seeds",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Number of maps with other seeds.",
)
@click.option(
    "--without-sites/--no-without-sites",
    default=None,
    help="Also leave out each site once. Default: with 3 to 10 sites all of them, with more the 10 largest.",
)
@options.data_dir
@options.quiet()
@options.edited
def stability(
    folder: Path, seeds: int, without_sites: bool | None, data_dir: Path | None, quiet: bool
) -> None:
    """Tell which places of the map of RUN stay with other seeds, and with each site left out.

    The command repeats the run in this process, without metrics. It writes stability.json, reliability.parquet and the
    report again.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_stability
    from raydr.runfolder.records import REPORT
    from raydr.scenarios.afterwards.stability import stability as compare_maps

    with heard_on_terminal(quiet=quiet) as listener:
        written = compare_maps(
            folder, seeds=seeds, without_sites=without_sites, data_dir=data_dir, listener=listener
        )
    if not quiet:
        print_stability(written)
    click.echo(written / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The .csv or .parquet file to write: row, x, y, novelty.",
)
@click.option(
    "--site",
    metavar="NAME|COLUMN",
    help="Site of the rows, or a column that names it, for runs with data.harmonize. Default: the run's column.",
)
@options.edited
def transform(folder: Path, data: str, out: Path, site: str | None) -> None:
    """Place the rows of DATA on the map of the run folder RUN, without a server.

    DATA is a file, or a folder or quoted pattern with one file per site. Columns are matched by name. A .parquet file
    may have any number of rows. The column novelty has each row's p-value for being like the mapped rows, and a
    warning says if many are unlike them.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.scenarios.afterwards.transforming import placing_of
    from raydr.scenarios.afterwards.transforming import transform as place

    with heard_on_terminal(passing=True) as listener:
        unlike = place(folder, data, out, site=site, listener=listener)
    if unlike is None:
        because = placing_of(folder, data).scenario.method.no_novelty
        click.echo(f"The file has no column novelty: {because}.", err=True)
    elif not unlike.unlike:
        click.echo(unlike.sentence, err=True)
    click.echo(out)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--site", metavar="NAME", help="The name of the site. Default: the name of DATA.")
@click.option(
    "--redraw",
    is_flag=True,
    help="Run again with the site, starting from the map of RUN, in a new run folder. Mapped rows stay near their"
    " places.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The new folder of --redraw. Default: RUN-with-SITE."
)
@options.address
@options.data_dir
@options.quiet()
@options.edited
def join(
    folder: Path,
    data: Path,
    site: str | None,
    redraw: bool,
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Add a site to the run folder RUN: place the rows of DATA on its map, and show what left the site.

    No other site takes part, and no mapped row moves. The command adds the site to RUN and writes its report again.
    With --redraw all sites take part again, and RUN does not change.
    """
    from raydr.errors import ScenarioError
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_earlier, print_joined
    from raydr.runfolder.records import REPORT
    from raydr.scenarios import redrawing
    from raydr.scenarios.afterwards import joining

    if not redraw and (out, address, data_dir) != (None, None, None):
        raise ScenarioError("--out, --address and --data-dir are for --redraw: add it, or leave them out.")
    with heard_on_terminal(quiet=quiet) as listener:
        if redraw:
            whole = redrawing.redraw(
                folder, data, site=site, out=out, address=address, data_dir=data_dir, listener=listener
            )
        else:
            whole = joining.join(folder, data, site=site, listener=listener)
    if not quiet:
        (print_earlier if redraw else print_joined)(whole)
    click.echo(whole / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("site")
@click.option("--out", type=click.Path(path_type=Path), help="The new run folder. Default: RUN-without-SITE.")
@options.address
@options.data_dir
@options.quiet()
@options.edited
def leave(
    folder: Path, site: str, out: Path | None, address: str | None, data_dir: Path | None, quiet: bool
) -> None:
    """Repeat the run of the folder RUN without SITE, and say what remains of that site.

    The command writes a new run folder next to RUN, which does not change.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_earlier
    from raydr.runfolder.records import REPORT
    from raydr.scenarios import leaving

    with heard_on_terminal(quiet=quiet) as listener:
        whole = leaving.leave(folder, site, out=out, address=address, data_dir=data_dir, listener=listener)
    if not quiet:
        print_earlier(whole)
    click.echo(whole / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@options.json_out("the table")
@options.data_dir
@options.edited
def bounds(folder: Path, out: Path | None, data_dir: Path | None) -> None:
    """Compare the bounds of P1's theorems with the measured values of the run folder RUN.

    RUN must have learnt landmarks. The command loads the data of the run again.
    """
    from raydr.front.terminal import print_bounds
    from raydr.scenarios.afterwards.bounding import bounds_of

    lines = bounds_of(folder, data_dir)
    if out is not None:
        options.write_json(out, [line.as_dict() for line in lines])
    print_bounds(lines)
