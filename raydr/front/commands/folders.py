"""Commands on folders that are there: pages, tables, attacks, new rows and bounds of runs that have been."""

from __future__ import annotations

from pathlib import Path

import click

from raydr.front import options


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--released",
    is_flag=True,
    help="Write what the run's epsilon covers, and nothing else, to a folder that may be handed out.",
)
@click.option("--out", type=click.Path(path_type=Path), help="That folder. Default: FOLDER-released.")
@options.edited
def report(folder: Path, released: bool, out: Path | None) -> None:
    """Make the report and picture of a run folder, or the page of a sweep folder, again from its files."""
    from raydr.errors import ScenarioError
    from raydr.report import (
        write_paper_report,
        write_picture,
        write_released,
        write_report,
        write_sweep_report,
    )
    from raydr.runfolder import is_sweep
    from raydr.runfolder.records import TABLE

    if out is not None and not released:
        raise ScenarioError("--out names the folder of --released: give both, or leave --out away.")
    if released:
        if is_sweep(folder):
            raise ScenarioError(
                f"{folder} is a sweep, whose best point was chosen by metrics of the raw data: give the run folder of"
                " one trial, and state the epsilon of all trials with it."
            )
        click.echo(write_released(folder, out))
        return
    if is_sweep(folder):
        page = write_sweep_report(folder)
        click.echo(write_paper_report(folder) if (folder / TABLE).exists() else page)
        return
    write_picture(folder)
    click.echo(write_report(folder))


@click.command()
@click.argument("folders", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write a page with the maps side by side here."
)
@options.edited
def compare(folders: tuple[Path, ...], out: Path | None) -> None:
    """Compare run folders: metrics, seconds, bytes, memory."""
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
    help="Only this one: raydr list attacks. Repeatable.",
)
@click.option(
    "--public", type=click.Path(path_type=Path), help="A file of rows of like data that the server is given."
)
@click.option(
    "--public-rows", type=click.IntRange(min=0), help="How many rows of like data, at most. Default: 10000."
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
    """Attack RUN, a run folder, with what its server saw: what could be recovered, beside what one could guess.

    Repeats the run in this process, to the bit, as only a simulation can; writes audit.json and makes the report again.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_audit
    from raydr.runfolder import read_audit
    from raydr.runfolder.records import REPORT
    from raydr.scenarios.afterwards import auditing

    settings = auditing.asked(folder, attacks, public_rows)
    with heard_on_terminal(quiet=quiet) as listener:
        written = auditing.audit(folder, settings, public=public, data_dir=data_dir, listener=listener)
    found = read_audit(written)
    if not quiet and found is not None:
        print_audit(found)
    click.echo(written / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The .csv or .parquet file to write: row, x, y.",
)
@click.option(
    "--site",
    metavar="NAME|COLUMN",
    help="Of a run that adjusted sites to each other: the rows' site, or the column that says so. Default: its own.",
)
@options.edited
def transform(folder: Path, data: str, out: Path, site: str | None) -> None:
    """Place the rows of DATA on the map of RUN, a run folder, without any server: columns are found by name.

    DATA is a file, or a folder or quoted pattern with a file for each site. A .parquet file may be of any length.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.scenarios.afterwards.transforming import transform as place

    with heard_on_terminal(passing=True) as listener:
        written = place(folder, data, out, site=site, listener=listener)
    click.echo(written)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--site", metavar="NAME", help="What the site is called. Default: the name of DATA.")
@options.quiet()
@options.edited
def join(folder: Path, data: Path, site: str | None, quiet: bool) -> None:
    """Have a site with the rows of DATA join RUN, a run folder: place them on its map, and say what left the site.

    Nobody else is asked, and no row that was mapped moves. RUN is extended by the site, and its report made again.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_joined
    from raydr.runfolder.records import REPORT
    from raydr.scenarios.afterwards import joining

    with heard_on_terminal(quiet=quiet) as listener:
        whole = joining.join(folder, data, site=site, listener=listener)
    if not quiet:
        print_joined(whole)
    click.echo(whole / REPORT)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@options.json_out("the table")
@options.data_dir
@options.edited
def bounds(folder: Path, out: Path | None, data_dir: Path | None) -> None:
    """Compare what P1's theorems promise of RUN, a run folder with learnt landmarks, with what came of it.

    Loads the run's data anew, as only a simulation can.
    """
    from raydr.front.terminal import print_bounds
    from raydr.scenarios.afterwards.bounding import bounds_of

    lines = bounds_of(folder, data_dir)
    if out is not None:
        options.write_json(out, [line.as_dict() for line in lines])
    print_bounds(lines)
