"""Contents of a job: a scenario or a sweep, and the files that it names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from raydr.actors.shipping import LARGEST, compressed, requirements
from raydr.data.catalogue import DATASETS, file_of
from raydr.data.provenance import sha256_of_file
from raydr.documents import parse_yaml
from raydr.errors import ScenarioError
from raydr.runfolder.manifest import seal
from raydr.runfolder.model import made_from_renamed
from raydr.runfolder.records import BEST, MANIFEST
from raydr.scenarios.running.environment import versions
from raydr.scenarios.schema.reading import content_of, dump, dump_yaml, read
from raydr.scenarios.schema.scenario import Scenario
from raydr.settings import path_mark
from raydr.tune.reading import names_sweep, read_sweep
from raydr.tune.schema import Sweep
from raydr.tune.search import search_of

SUBMISSION, SCENARIO, SWEEP, DATA = "submission.json", "scenario.yaml", "sweep.yaml", "data"
"""Names in a job's working directory; ``DATA`` is its data folder."""
_OWN = 3_000_000
"""Bytes that are reserved for raydr itself and the scenario."""


@dataclass(frozen=True)
class Submission:
    """A job, with all files that it needs.

    Attributes
    ----------
    name : str
        Name of the scenario, or of the sweep's file.
    kind : {"run", "sweep"}
    work : mapping of name to file or content
        The job's working directory.
    remarks : tuple of str
        Files that were not sent, which the cluster must have.
    """

    name: str
    kind: str
    work: Mapping[str, Path | bytes]
    remarks: tuple[str, ...]


def submission(file: str, overrides: Mapping[str, Any], data_dir: Path | None) -> Submission:
    """Read and check a scenario or a sweep, and collect its files.

    Parameters
    ----------
    file : str
        File or name of a scenario or a sweep.
    overrides : mapping
        Values by dotted key for the scenario, or for the base of the sweep.
    data_dir : Path, optional
        Folder of built-in data sets.

    Raises
    ------
    ScenarioError
        If it cannot be run.
    """
    sweep = read_sweep(file, overrides) if names_sweep(file) else None
    scenarios = _known(sweep) if sweep is not None else [read(file, overrides)]
    gathered = _Gathered()
    sent = {path: name for scenario in scenarios for path, name in gathered.files_of(scenario)}
    # A scenario has the rows of its codebook, so only the axis names the file.
    axes = sweep.space.get(_CODEBOOK, ()) if sweep is not None else ()
    books = [value for axis in axes for value in axis.grid or axis.choice or () if isinstance(value, str)]
    sent |= dict(gathered.named((_CODEBOOK, book, False) for book in books))
    data_sets = [gathered.data_set(scenario, data_dir) for scenario in scenarios]
    work = dict(gathered.work)
    if sweep is None:
        name, kind = scenarios[0].name, "run"
        work[SCENARIO] = _yaml(_replaced(yaml.safe_load(dump(scenarios[0])), sent))
    else:
        name, kind = sweep.name, "sweep"
        work[SWEEP] = _yaml(_replaced(sweep.model_dump(mode="json", exclude={"quick"}), sent))
    described = {
        "kind": kind,
        "name": name,
        "paths": {name: path for path, name in sent.items()},
        "data": any(data_sets),
        "versions": {"python": sys.version.split()[0], **versions()},
        "requirements": requirements(),
    }
    work[SUBMISSION] = json.dumps(described, indent=1).encode()
    return Submission(name, kind, work, tuple(gathered.remarks))


def _known(sweep: Sweep) -> list[Scenario]:
    """Return the scenarios of the sweep's points that are known in advance; this also checks them."""
    search = search_of(sweep)
    points = (search.point(number, {}) for number in range(search.count))
    return [point.scenario(0) for point in points if point is not None]


_CODEBOOK = "data.codebook"


class _Gathered:
    """Collects files for a job's working directory, up to the size limit."""

    def __init__(self) -> None:
        self.work: dict[str, Path | bytes] = {}
        self.remarks: list[str] = []
        self._room = LARGEST - _OWN
        self._seen: dict[str, str | None] = {}

    def files_of(self, scenario: Scenario) -> Iterator[tuple[str, str]]:
        """Add the files that a scenario names; yield the absolute path and the new name of each."""
        if scenario.clients.joined or scenario.prior is not None:
            raise ScenarioError(
                "clients.joined and prior name files of this machine that are not sent: run the scenario here, or copy"
                " them to the cluster and run it there."
            )
        yield from self.named(_paths(scenario.resolved()))
        if scenario.clients.sites:
            self._remark("the files of clients.sites were not sent: the cluster's nodes must have them")

    def named(self, paths: Iterable[tuple[str, str, bool]]) -> Iterator[tuple[str, str]]:
        """Add files, by their keys and whether they are secret; yield as :meth:`files_of`."""
        for key, text, secret in paths:
            if text not in self._seen:
                # Keep the file's own name, because the run folder mentions it.
                name = f"files/{len(self.work)}/{Path(text).name}"
                if secret:
                    self._remark(f"{key} is secret and was not sent: the cluster's head must have {text}")
                sent = not secret and self._taken(name, Path(text), key)
                self._seen[text] = name if sent else None
            known = self._seen[text]
            if known is not None:
                yield text, known

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def data_set(self, scenario: Scenario, data_dir: Path | None) -> bool:
        """Add the built-in data set of a scenario; return whether the job has a data folder."""
        source = scenario.data.source
        if source is None or DATASETS[source].origin == "bundled":
            return False
        if f"{DATA}/{source}.npz" in self.work:
            return True
        path = file_of(DATASETS[source], data_dir)
        if path is None:
            self._remark(f"{source} is not on this machine: the cluster must have it or download it")
            return False
        return self._taken(f"{DATA}/{source}.npz", path, source)

    def _taken(self, name: str, path: Path, what: str) -> bool:
        if not path.is_file():
            self._remark(
                f"{what} was not sent, because {path} does not exist here: the cluster's head must have it"
            )
            return False
        try:
            size = compressed(path, self._room)
        except OSError as error:
            self.remarks.append(f"{what} was not sent: cannot read {path} ({error.strerror})")
            return False
        if size > self._room:
            self._remark(
                f"{what} was not sent, because {path} exceeds {LARGEST / 1e6:.0f} MB compressed: the cluster's head"
                " must have it"
            )
            return False
        self._room -= size
        self.work[name] = path
        return True


def _paths(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield keys that name files of this machine, the files, and whether they are secret; not the files of sites."""
    for name, field in type(settings).model_fields.items():
        value, mark = getattr(settings, name), path_mark(field)
        if mark is not None and mark.elsewhere is None and isinstance(value, str) and mark.is_path(value):
            yield f"{prefix}{name}", value, mark.secret
        elif isinstance(value, BaseModel):
            yield from _paths(value, f"{prefix}{name}.")


def _replaced(content: Any, names: Mapping[str, str]) -> Any:
    if isinstance(content, Mapping):
        return {key: _replaced(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [_replaced(item, names) for item in content]
    return names.get(content, content) if isinstance(content, str) else content


def localised(folder: Path, paths: Mapping[str, str]) -> None:
    """Replace file paths in all scenarios of a folder with the paths on the client's machine.

    Parameters
    ----------
    folder : Path
        A run folder, or a sweep folder.
    paths : mapping
        Absolute paths on the client's machine, by paths on this machine.
    """
    if not paths:
        return
    for file in (*folder.rglob(SCENARIO), folder / BEST):
        if file.is_file():
            before = sha256_of_file(file)
            file.write_text(dump(read(_replaced(content_of(file), paths))), encoding="utf-8")
            made_from_renamed(file.parent, before)
    if (folder / SWEEP).is_file():
        content = parse_yaml((folder / SWEEP).read_text(encoding="utf-8"))
        (folder / SWEEP).write_text(dump_yaml(_replaced(content, paths)), encoding="utf-8")
    for manifest in folder.rglob(MANIFEST):
        seal(manifest.parent)


def _yaml(content: Any) -> bytes:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode()
