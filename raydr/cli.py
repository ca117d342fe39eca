"""The ``raydr`` command.

Exit status: 0 for a whole run, 2 for a scenario, data or place that cannot be used, 3 for a run that failed, 130 after
Ctrl-C.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click
import typer

from raydr.errors import RaydrError

app = typer.Typer(
    help="Federated dimensionality reduction, simulated on Ray: one map of everybody's data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Catalogue(StrEnum):
    """What ``raydr list`` can list."""

    SCENARIOS = "scenarios"
    METHODS = "methods"
    METRICS = "metrics"
    DATASETS = "datasets"


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="A YAML file, or a name from `raydr list scenarios`.")],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key, such as method.landmarks=200. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. Default: runs/NAME-TIMESTAMP.")] = None,
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster, such as auto or HOST:PORT. Default: this machine.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of built-in data sets as NAME.npz. Default: $RAYDR_DATA.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but the report's path.")
    ] = False,
) -> None:
    """Run one scenario and write its run folder, report included."""
    from raydr.terminal import heard_on_terminal, print_result
    from scenarios.reading import parse_override

    overrides = dict(parse_override(assignment) for assignment in assignments or [])
    import raydr.api

    with heard_on_terminal() if not quiet else nullcontext(None) as listener:
        folder = raydr.api.run_with(
            scenario, overrides, out=out, address=address, data_dir=data_dir, listener=listener
        )
    if not quiet:
        print_result(folder)
    typer.echo(folder / "report.html")


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Make a run folder's report and picture again, from its files."""
    from raydr.report import write_picture, write_report

    write_picture(folder)
    typer.echo(write_report(folder))


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option(help="Also write a page with the maps side by side.")] = None,
) -> None:
    """Compare runs: metrics, seconds, bytes, memory."""
    from raydr.report import compare as compare_runs
    from raydr.report import write_comparison
    from raydr.terminal import print_comparison

    print_comparison(compare_runs(folders))
    if out is not None:
        typer.echo(write_comparison(folders, out))


@app.command("list")
def list_(what: Annotated[Catalogue, typer.Argument(help="Which catalogue.")]) -> None:
    """List what there is, one line each."""
    from raydr.terminal import print_catalogue

    match what:
        case Catalogue.SCENARIOS:
            from scenarios.reading import shipped

            print_catalogue(shipped())
        case Catalogue.METHODS:
            from raydr.methods import METHODS

            print_catalogue({name: method.summary for name, method in METHODS.items()})
        case Catalogue.METRICS:
            from raydr.metrics import METRICS

            print_catalogue({name: metric.description for name, metric in METRICS.items()})
        case Catalogue.DATASETS:
            from raydr.data import DATASETS

            print_catalogue({name: dataset.description for name, dataset in DATASETS.items()})


def main() -> None:
    """Entry point of the ``raydr`` command."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        code = app(standalone_mode=False)
    except RaydrError as error:
        code = _say(f"raydr: {error}", error.exit_code)
    except click.exceptions.Abort:
        code = _say("raydr: interrupted; nothing was kept of this run.", 130)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except Exception:
        traceback.print_exc()
        code = _say("raydr: this is an error of raydr's own, please report it with the lines above.", 3)
    sys.exit(code)


def _say(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
