"""Reading and checking of sweep files; errors name every problem."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raydr.data.survey.codebook import read_codebook
from raydr.errors import OutputError, ScenarioError, did_you_mean
from raydr.metrics import metric_named
from raydr.registry import extensions
from raydr.runfolder.records import COSTS, SIDES, SWEEP
from raydr.scenarios.schema.document_store import DocumentStore
from raydr.scenarios.schema.problems import ROOT as SCENARIO_ROOT
from raydr.scenarios.schema.problems import Section, problems, truth_values, unwritable_text
from raydr.scenarios.schema.reading import SCENARIOS, copied, dump_yaml, override
from raydr.settings import PathMark, path_mark
from raydr.tune.schema import Axis, Optuna, Quick, RandomSearch, Sweep
from raydr.tune.tables import TableSearch

SWEEPS = DocumentStore(
    resources.files("raydr.tune") / "shipped", "sweep", "raydr sweep", SWEEP, "name, base and space"
)
ROOT = Section((), (Sweep,), "a sweep")
VERSION = "raydr"
"""Extra key of a stored sweep: the version of raydr that started it."""


PAPERS = DocumentStore(
    resources.files("raydr.scenarios") / "papers",
    "table",
    "raydr reproduce",
    SWEEP,
    "name, base and search: {kind: table}",
)
"""Published tables; each is a sweep whose points are the cells."""


def shipped() -> dict[str, str]:
    """Return the names of the shipped sweeps, each with the comment on its first line."""
    return SWEEPS.names()


def is_sweep(content: Mapping[str, Any]) -> bool:
    """Return whether a document has the keys of a sweep, not of a scenario."""
    return "base" in content or "space" in content


def names_sweep(document: str) -> bool:
    """Return whether a file or shipped name is a sweep; False if it cannot be read."""
    path = Path(document).expanduser()
    if not path.is_file():
        return document in shipped() and document not in SCENARIOS.names()
    try:
        return is_sweep(SWEEPS.parse(path))
    except ScenarioError:
        return False


def read_sweep(
    sweep: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    quick: bool = False,
    store: DocumentStore = SWEEPS,
    only: tuple[str, ...] = (),
) -> Sweep:
    """Read and check a sweep.

    Parameters
    ----------
    sweep : str, Path or mapping
        A YAML file, the name of a shipped sweep, or the content itself.
    overrides : mapping, optional
        Values of the base by dotted key.
    quick : bool
        Whether to apply the section ``quick``.
    store : DocumentStore
        The shipped documents.
    only : tuple of str
        Rows, groups of rows or columns of a published table; empty for all.

    Returns
    -------
    sweep : Sweep
        The sweep, with its base as a mapping, every path resolved, and no section ``quick``.

    Raises
    ------
    ScenarioError
        If the sweep is invalid. The message has every problem's key path, reason and nearest valid name.
    """
    if isinstance(sweep, Mapping):
        where, content, folder = "the sweep", copied(sweep), Path()
    else:
        where, content, folder = str(sweep), store.parse(sweep), Path(sweep).expanduser().parent
    checked = _checked(where, content)
    _require_measures(checked.objectives)
    base = _base(checked, folder)
    changed: dict[str, Any] = {}
    if quick:
        if checked.quick is None:
            raise ScenarioError(
                f"{where} does not say what --quick changes. Add a section `quick`, such as"
                " {base: {data.rows: 300}, repeats: 1}."
            )
        checked = _with_quick(checked, checked.quick)
        changed |= checked.quick.base if checked.quick else {}
        changed |= {"repeats": checked.repeats}
        for key, value in (checked.quick.base if checked.quick else {}).items():
            override(base, key, value)
    changed |= overrides or {}
    if isinstance(checked.search, TableSearch):
        checked = checked.model_copy(update={"search": _table(checked.search, only, changed)})
    elif only:
        raise ScenarioError(f"{where} is not a published table, so --only has nothing to select.")
    for key, value in (overrides or {}).items():
        override(base, key, value)
        if key in checked.keys:
            raise ScenarioError(f"--set {key}: {_set_elsewhere(checked)}.")
    _require_computed(checked, base)
    space = {
        key: tuple(_with_paths_resolved(axis, key) for axis in axes) for key, axes in checked.space.items()
    }
    return checked.model_copy(
        update={
            "base": paths_resolved(_with_rows_of_codebook(base), SCENARIO_ROOT),
            "space": space,
            "quick": None,
        }
    )


def _require_measures(objectives: Iterable[str]) -> None:
    """Raise ScenarioError for an objective that no trial has."""
    for name in objectives:
        side, _, metric = name.partition(".")
        if name not in COSTS and (side not in SIDES or not metric):
            raise ScenarioError(
                f"objectives: there is no measure {name!r}{did_you_mean(name, COSTS)}. The measures are"
                f" {', '.join(COSTS)}, and those of maps, such as federated.npa_10 and worst_site.npa_10."
            )
        if metric:
            try:
                metric_named(metric)
            except ScenarioError as error:
                raise ScenarioError(f"objectives: {name}: {error}") from None


def _require_computed(sweep: Sweep, base: Mapping[str, Any]) -> None:
    """Raise ScenarioError for an objective that ``metrics`` of the base leaves out."""
    metrics = base.get("metrics", "default")
    if "objectives" not in sweep.model_fields_set or isinstance(sweep.search, TableSearch):
        return
    for name in sweep.objectives:
        side, _, metric = name.partition(".")
        if side not in SIDES or "metrics" in sweep.space:
            continue
        named = [metrics] if isinstance(metrics, str) else metrics
        if metric not in named and not ("default" in named and metric_named(metric).by_default):
            kept = "".join(f"{other}, " for other in named)
            raise ScenarioError(
                f"objectives: no trial has {name}, because the base's metrics leave it out. Set metrics:"
                f" [{kept}{metric}] in the base."
            )


def _set_elsewhere(sweep: Sweep) -> str:
    """Return why the base cannot change a key in which points differ, and what to do."""
    if isinstance(sweep.search, TableSearch):
        return (
            "some rows or columns of the table set this key. Change its values there, or run only other rows by"
            " --only"
        )
    return "the sweep's space sets this key. Change its values there"


def _table(table: TableSearch, only: tuple[str, ...], changed: Mapping[str, Any]) -> TableSearch:
    """Return a table with the selected rows, resolved paths, and a record of what was changed."""
    try:
        table = table.of_names(only) if only else table
    except ValueError as error:
        raise ScenarioError(f"--only: {error}.") from None
    reduced = {**changed, **table.reduced}

    def resolved(place: Any) -> Any:
        changed = {
            name: {key: _resolved_at(key, value) for key, value in getattr(place, name).items()}
            for name in ("set", "published")
        }
        return place.model_copy(update=changed)

    return table.model_copy(
        update={
            "reduced": reduced,
            "columns": tuple(map(resolved, table.columns)),
            "rows": tuple(map(resolved, table.rows)),
            "groups": tuple(
                resolved(group).model_copy(update={"rows": tuple(map(resolved, group.rows))})
                for group in table.groups
            ),
        }
    )


def paths_resolved(content: Any, section: Section | None) -> Any:
    """Return a part of a scenario with every file path made absolute."""
    if isinstance(content, list | tuple):
        return [paths_resolved(item, section) for item in content]
    if section is None or not isinstance(content, Mapping):
        return content
    found = {}
    for key, value in content.items():
        mark = _mark(section, key)
        if mark is not None and isinstance(value, str):
            elsewhere = mark.elsewhere is not None and content.get(mark.elsewhere) is not None
            found[key] = value if elsewhere else os.path.realpath(os.path.expanduser(value))
        else:
            found[key] = paths_resolved(value, section.inner(key) if isinstance(key, str) else None)
    return found


def _with_paths_resolved(axis: Axis, key: str) -> Axis:
    values = axis.grid or axis.choice
    if values is None:
        return axis
    resolved = tuple(_resolved_at(key, value) for value in values)
    return axis.model_copy(update={axis.sort: resolved})


def _resolved_at(key: str, value: Any) -> Any:
    """Return a value of a dotted key with every file path in it made absolute."""
    *parents, last = key.split(".")
    section: Section | None = SCENARIO_ROOT
    for parent in parents:
        section = section.inner(parent) if section else None
    return paths_resolved({last: value}, section)[last]


def _mark(section: Section, key: Any) -> PathMark | None:
    fields = (model.model_fields[key] for model in section.models if key in model.model_fields)
    return next((mark for field in fields if (mark := path_mark(field)) is not None), None)


def stored(sweep: Sweep) -> str:
    """Return the text of a sweep for its folder, with the version of raydr that started it."""
    return dump_yaml({VERSION: _version(), **sweep.model_dump(mode="json", exclude={"quick"})})


def read_stored(path: Path) -> Sweep:
    """Read a sweep that :func:`stored` wrote.

    Raises
    ------
    OutputError
        If another version of raydr started it.
    ScenarioError
        If the file is not a valid sweep.
    """
    content = SWEEPS.parse(path)
    began = content.pop(VERSION, None)
    if began != _version():
        raise OutputError(
            f"The sweep in {path.parent} was started by raydr {began}, but this is raydr {_version()}. Resume it with"
            f" raydr {began}, or start a new sweep."
        )
    return _checked(str(path), content)


def _version() -> str:
    return " ".join(
        [version("raydr"), *(f"{name} {number}" for name, number in sorted(extensions().items()))]
    )


def _checked(where: str, content: Mapping[str, Any]) -> Sweep:
    try:
        checked = Sweep.model_validate(content)
        settings = {key: value for key, value in content.items() if key not in ("base", "space", "quick")}
        found = truth_values(settings, checked) + unwritable_text(content)
    except ValidationError as error:
        found = problems(error, content, ROOT)
    if found:
        raise ScenarioError(f"{where} cannot be run: {'; '.join(found)}.")
    return checked


def _with_rows_of_codebook(base: dict[str, Any]) -> dict[str, Any]:
    """Return a base with the rows of its codebook instead of the path, so that trials and jobs need no file."""
    data = base.get("data")
    if not isinstance(data, Mapping) or not isinstance(data.get("codebook"), str):
        return base
    rows = read_codebook(Path(data["codebook"])).rows
    return {**base, "data": {**data, "codebook": [row.model_dump(mode="json") for row in rows]}}


def _base(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """Return the keys of the base: given, or read from a file next to the sweep or in the current directory."""
    if isinstance(sweep.base, Mapping):
        base = copied(sweep.base)
    else:
        sibling = folder / sweep.base
        base = SCENARIOS.parse(sibling if sibling.is_file() else sweep.base)
    return {"name": sweep.name, **base}


def _with_quick(sweep: Sweep, quick: Quick) -> Sweep:
    unknown = [key for key in quick.space if key not in sweep.space]
    if unknown:
        raise ScenarioError(
            f"quick.space has {unknown[0]}, but space does not. quick.space can only replace axes of space."
        )
    changed: dict[str, Any] = {"space": {**sweep.space, **quick.space}}
    changed |= {key: value for key in ("repeats", "max_trials") if (value := getattr(quick, key)) is not None}
    if quick.samples is not None and isinstance(sweep.search, RandomSearch | Optuna):
        changed["search"] = sweep.search.model_copy(update={"samples": quick.samples})
    return sweep.model_copy(update=changed)
