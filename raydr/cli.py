"""The ``raydr`` command.

Exit status: 0 for a whole run, 2 for a command line, scenario, data or place that cannot be used, 3 for a run that
failed, 130 after Ctrl-C and 143 after SIGTERM. The path of what was written is the only line on standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from raydr.errors import RaydrError

CATALOGUES = ("scenarios", "methods", "metrics", "datasets")
"""What ``raydr list`` can list."""


class _InOrder(click.Group):
    """A group whose help lists commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="raydr", message="raydr %(version)s")
def app() -> None:
    """Federated dimensionality reduction, simulated on Ray: one map of everybody's data, and its price in privacy."""


@app.command()
@click.argument("scenario")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, such as method.landmarks=200. Repeatable.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The run folder. Default: runs/NAME-TIMESTAMP.")
@click.option("--address", help="A Ray cluster, such as auto or HOST:PORT. Default: this machine.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of built-in data sets as NAME.npz. Default: $RAYDR_DATA.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the report's path.")
def run(
    scenario: str,
    assignments: tuple[str, ...],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Run SCENARIO and write its run folder, report included.

    SCENARIO is a YAML file, or a name from `raydr list scenarios`.
    """
    from raydr.journal import unheard
    from raydr.terminal import heard_on_terminal, print_result
    from scenarios.reading import parse_override, read
    from scenarios.runner import run as run_scenario

    checked = read(scenario, dict(parse_override(assignment) for assignment in assignments))
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        folder = run_scenario(checked, out=out, address=address, data_dir=data_dir, listener=listener)
    if not quiet:
        print_result(folder)
    click.echo(folder / "report.html")


@app.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
def report(folder: Path) -> None:
    """Make the report and picture of RUN, a run folder, again from its files."""
    from raydr.report import write_picture, write_report

    write_picture(folder)
    click.echo(write_report(folder))


@app.command()
@click.argument("folders", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write a page with the maps side by side here."
)
def compare(folders: tuple[Path, ...], out: Path | None) -> None:
    """Compare run folders: metrics, seconds, bytes, memory."""
    from raydr.report import compare as compare_runs
    from raydr.report import write_comparison
    from raydr.terminal import print_comparison

    print_comparison(compare_runs(folders))
    if out is not None:
        click.echo(write_comparison(folders, out))


@app.command("list")
@click.argument("what", metavar="|".join(CATALOGUES), type=click.Choice(CATALOGUES))
def list_(what: str) -> None:
    """List what there is, one line each."""
    from raydr.terminal import print_catalogue

    match what:
        case "scenarios":
            from scenarios.reading import shipped

            print_catalogue(shipped())
        case "methods":
            from raydr.methods import METHODS

            print_catalogue({name: method.summary for name, method in METHODS.items()})
        case "metrics":
            from raydr.metrics import METRICS

            print_catalogue({name: metric.description for name, metric in METRICS.items()})
        case "datasets":
            from raydr.data import DATASETS

            print_catalogue({name: dataset.description for name, dataset in DATASETS.items()})


def main() -> NoReturn:
    """Entry point of the ``raydr`` command."""
    signal.signal(signal.SIGINT, _interrupted_once)
    signal.signal(signal.SIGTERM, _terminated)
    # What libraries have to say is for their users, and raydr's user is not one: -W and PYTHONWARNINGS bring it back.
    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    sys.exit(status(sys.argv[1:]))


def status(arguments: Sequence[str]) -> int:
    """Do what the arguments say, put what went wrong in one paragraph on standard error, return the exit status."""
    try:
        outcome = app.main(list(arguments), prog_name="raydr", standalone_mode=False)
        sys.stdout.flush()
        return outcome or 0
    except RaydrError as error:
        return _say(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _say(_usage(error), error.exit_code)
    except click.Abort:
        return _say("interrupted; nothing of this run is kept.", 128 + signal.SIGINT)
    except SystemExit as stop:
        if stop.code != signal.SIGTERM:
            raise
        return _say("terminated; nothing of this run is kept.", 128 + signal.SIGTERM)
    except BrokenPipeError:
        # Whoever reads our output has seen enough. Python would complain once more while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception:
        traceback.print_exc()
        return _say("this is an error of raydr's own; please report it with the lines above.", 3)


def _say(text: str, code: int) -> int:
    from raydr.terminal import print_paragraph

    print_paragraph(f"raydr: {text}")
    return code


def _usage(error: click.ClickException) -> str:
    """A mistake in the command line in one line, with the command to ask for help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message}. See `{context.command_path if context else 'raydr'} --help`."


def _interrupted_once(number: int, frame: FrameType | None) -> None:
    """Begin to end the run; further Ctrl-C would only interrupt the cleaning up, which takes a second or two."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _terminated(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C. While Ray runs its own handler stands here, which does the same."""
    sys.exit(number)
