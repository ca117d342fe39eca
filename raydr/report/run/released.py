"""Export of the part of a run folder that the run's privacy claim covers.

A run folder also holds the evaluation's view: positions of all rows, metrics of the raw data, the pooled-data map. No
noise covers these. :data:`raydr.runfolder.records.RELEASED` lists the files and fields that follow from charged
releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.report import wording
from raydr.report.run.released_map import WIDTH, released_map
from raydr.report.templates import part, templates
from raydr.runfolder import records
from raydr.runfolder.reading import RunFolder, read_run

PAGE = "released.html"
_REMEDY = "pass another folder with --out, or free disk space there"


def write_released(folder: Path, out: Path | None = None) -> Path:
    """Write what a run's privacy claim covers to a new folder, with a page.

    Parameters
    ----------
    folder : Path
        A complete run folder.
    out : Path, optional
        The new folder; default: ``NAME-released`` next to the run folder.

    Returns
    -------
    page : Path
        ``released.html`` in the new folder.

    Raises
    ------
    OutputError
        If the run has no epsilon, was edited or is incomplete, or the new folder exists or cannot be written.
    """
    run = read_run(Path(folder))
    if run.edited:
        raise OutputError(
            f"{run.path} was edited ({'; '.join(run.edited)}), so no privacy claim covers its content. Restore its"
            " files, or repeat the run and release the new folder."
        )
    if run.privacy.epsilon is None:
        reasons = "; ".join(run.privacy.infinite)
        raise OutputError(
            f"The run in {run.path} has no finite epsilon, so no privacy claim covers any part of it: {reasons}. Run a"
            " scenario with privacy.strict: true, such as one with method.kind: private-map, and release that run."
        )
    target = Path(out) if out is not None else run.path.with_name(f"{run.path.name}-released")
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(
            f"{target} already exists. Pass another folder with --out, or move it away."
        ) from None
    except OSError as error:
        raise OutputError(f"Cannot create {target} ({error.strerror or error}): {_REMEDY}.") from error
    for file, fields in records.RELEASED.items():
        if (run.path / file).exists():
            write_whole(target / file, covered(run.path / file, fields), _REMEDY)
    page = templates().get_template(f"run/{PAGE}").render(**_content(run, target))
    return write_whole(target / PAGE, page.encode("utf-8"), _REMEDY)


def covered(path: Path, fields: tuple[str, ...] | None) -> bytes:
    """Return the content of a file, or only the given fields of it."""
    content = path.read_bytes()
    if fields is None:
        return content
    if path.suffix == ".jsonl":
        lines = (json.dumps(_some(json.loads(line), fields)) for line in content.splitlines() if line.strip())
        return "".join(f"{line}\n" for line in lines).encode()
    return (json.dumps(_some(json.loads(content), fields), indent=2) + "\n").encode()


def _some(content: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: content[name] for name in fields if name in content}


def _content(run: RunFolder, target: Path) -> dict[str, Any]:
    return {
        "run": run,
        "style": part("report.css"),
        "cost": wording.cost(run),
        "epsilon": wording.epsilon,
        "map": released_map(target / records.ARRAYS),
        "width": WIDTH,
        "files": list(_files(target)),
        "up": sorted((entry for entry in run.ledger if entry.direction == "up"), key=wording.by_revelation),
        "promise": wording.promise,
        "protection": wording.protection,
    }


def _files(target: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(target.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(target)), path.stat().st_size
