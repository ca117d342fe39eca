"""Own data in one line: what a table is taken for, and the scenario that says so."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from raydr.data.columns import Choice, listing
from raydr.data.dialect import Dialect
from raydr.data.loading import ENDINGS, NO_LABEL, SHEETS, TABLES, TEXTS, ending, read_file, survey
from raydr.data.site import files_of
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.extras import require_packages
from raydr.geometry.points import Progress, unheard
from raydr.plain import listed, plain
from raydr.report.run.mapped import Fact, facts, hashes
from raydr.runfolder.records import SCENARIO
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import Holdings, dealt_out, from_sites
from raydr.scenarios.schema import reading
from raydr.scenarios.schema.document_store import FOR_ROWS, kind_of_object
from raydr.scenarios.schema.scenario import Scenario

METHOD = "fed-umap"
"""Of a map of one's own data, unless another is named."""
SITES = ("site", "hospital", "client", "clinic", "centre", "center", "station", "institution")
"""Names of columns that are taken to say whose a row is, where nobody says which does."""
CLIENTS = 3
"""To whom rows are dealt where no column says whose they are."""
_DEALING = ("clients.count", "clients.partition", "clients.sites")
_MOST_SITES = 20  # named in a line


@dataclass(frozen=True)
class Taken:
    """Own data as they will be mapped.

    Attributes
    ----------
    scenario : Scenario
        That maps them.
    content : mapping
        What of it is not as ever: its own keys, to be written and changed.
    facts : tuple of Fact
        What was taken for what.
    """

    scenario: Scenario
    content: Mapping[str, Any]
    facts: tuple[Fact, ...]


def own_data(
    data: str | Path,
    *,
    site: str | None = None,
    label: str | None = None,
    method: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    site_needed: bool = True,
    progress: Progress = unheard,
) -> Taken:
    """Read everything of own data, and make the scenario that maps them; arguments are as for :func:`raydr.map`.

    Missing values are filled in by the median where there are any, columns of few words become zeros and ones, and
    numbers are scaled to standard deviation 1, unless ``overrides`` say otherwise. Where nobody says whose a row is,
    and nobody needs to, rows are dealt to a few clients at random.

    Raises
    ------
    DataError
        If the data cannot be used, or nobody says whose a row is.
    ScenarioError
        If the method or an override cannot be.
    """
    if not isinstance(data, str | PathLike):
        raise DataError(
            f"A table is named by its path, and what was given is {kind_of_object(data)}: {FOR_ROWS}."
        )
    files = files_of(data)
    content: dict[str, Any] = {
        "name": _name(data),
        "data": {"label": label, "scale": "standard", "missing": "median", "categories": "one-hot"},
        "clients": {},
        "method": {"kind": method or METHOD},
        "compare": ["central"],
    }
    if label is None:
        del content["data"]["label"]
    if files is None:
        content["data"] = {"path": str(data)} | content["data"]
    else:
        content["clients"]["sites"] = [{"path": str(file)} for file in files]
    asked = dict(overrides or {})
    for key, value in asked.items():
        reading.override(content, key, value)
    dealt = [key for key in asked if key == "clients" or key.startswith(_DEALING)]
    if files is None and not dealt:
        with _in_words_of_the_command_line():
            column = site or _site(
                Path(data), label, content["data"].get("matrix"), needed=site_needed, progress=progress
            )
        content["clients"] |= (
            {"count": CLIENTS} if column is None else {"partition": {"kind": "by-column", "column": column}}
        )
    elif site is not None:
        raise ScenarioError(
            f"--site {site}: " + ("each file is a site of its own" if files else f"{dealt[0]} is set as well")
            + ", so leave --site out."
        )  # fmt: skip
    with _in_words_of_the_command_line():
        holdings = held(_read_all(content), progress=progress)
    if "data.missing" not in asked and not _lacks(holdings):
        del content["data"]["missing"]
    scenario = reading.read(content)
    scenario.method.check(holdings.rows, holdings.features)
    return Taken(scenario, content, described(scenario, replace(holdings, filling=scenario.data.filling)))


@contextmanager
def _in_words_of_the_command_line() -> Iterator[None]:
    """Have errors speak of options where whoever reads them gave no keys."""
    words = {"clients.partition.column": "--site", "data.label": "--label"}
    try:
        yield
    except DataError as error:
        text = re.sub("|".join(map(re.escape, words)), lambda knob: words[knob[0]], str(error))
        raise DataError(text) from error.__cause__


def held(scenario: Scenario, data_dir: Path | None = None, *, progress: Progress = unheard) -> Holdings:
    """Read everything that a scenario's run would read, here, and start nothing.

    Raises
    ------
    ScenarioError, DataError
        If a run would be refused for its data.
    """
    require_packages(scenario)
    if not scenario.clients.sites:
        holdings = dealt_out(scenario, data_dir, progress=progress)
    else:
        away = [site for site in scenario.clients.sites if not Path(site.path).expanduser().exists()]
        if away and all(site.node is not None for site in away):
            raise DataError(f"{away[0].path} is on the node {away[0].node}, so it can be read there alone.")
        holdings = from_sites(scenario, InlineBackend())
    scenario.require_clients(len(holdings.names))
    scenario.method.check(holdings.rows, holdings.features)
    return holdings


def described(scenario: Scenario, holdings: Holdings) -> tuple[Fact, ...]:
    """What was taken for what."""
    sizes = np.bincount(holdings.client_of_row, minlength=len(holdings.names))
    each = [f"{name} {size:,}" for name, size in zip(holdings.names, sizes, strict=True)]
    partition = scenario.clients.partition
    column = getattr(partition, "column", None)
    by = "a file each" if scenario.clients.sites else f"column {column}" if column else f"{partition.kind}"
    said = [Fact("Sites", f"{len(each):,} by {by}: {listed(each, _MOST_SITES)}")]
    if holdings.labels is None:
        said.append(Fact("Label", "none: the map is coloured by site"))
    else:
        name = scenario.data.label or "the data's own"
        counts = np.bincount(holdings.labels, minlength=len(holdings.label_names))
        classes = [
            f"{label} {count:,}" for label, count in zip(holdings.label_names, counts, strict=True) if count
        ]
        said.append(Fact("Label", f"{name}: {listed(classes, _MOST_SITES)}"))
    if holdings.words:
        words = [f"{column} ({listed(each, 6)})" for column, each in holdings.words.items()]
        said.append(Fact("Text as zeros and ones", listed(words, _MOST_SITES)))
    paths = [site.path for site in scenario.clients.sites] or [path for path in [scenario.data.path] if path]
    texts = [Path(path).expanduser() for path in paths if ending(Path(path)) in TEXTS]
    written = {str(Dialect.of(path)) for path in texts}
    if written:
        said.append(Fact("Written", "; ".join(sorted(written))))
    data = holdings.provenance(scenario.data.scale)
    return (*said, *facts(data), *hashes(data), Fact("Method", scenario.method.kind))


def commented(taken: Taken) -> str:
    """A scenario as YAML, with what was found in the data, and what could be changed, as comments."""
    content = dict(taken.content)
    # Names of columns may hold line breaks, after which a comment would be none.
    notes = "\n".join(f"# {plain(' '.join(f'{fact.name}: {fact.text}'.split()))}" for fact in taken.facts)
    sections = {name: reading.dump_yaml({name: content.pop(name)}) for name in list(content)}
    remarks = {
        "data": "# features: [...] maps these columns alone; missing: error, drop, mean or median;\n"
        "# categories: one-hot or leave-out; scale: none, standard, minmax or unit; holdout: 0.2 keeps a fifth back;\n"
        "# harmonize: center, scale or combat takes off rows what is their site's, real differences too.\n",
        "clients": "# Who holds which rows; a column that says so, or sites: a file for each.\n",
        "method": "# raydr list methods; its other keys are in docs/scenarios.md.\n",
        "compare": "# Also map the pooled data, as no federation can: a reference, and no bound.\n",
    }
    text = "".join(remarks.get(name, "") + section for name, section in sections.items())
    return (
        f"{notes}\n#\n# raydr run FILE runs this, raydr plan FILE says what it needs; paths are relative to where you"
        f" run it.\n\n{text}# show: [COLUMN]   # what the page tells of each row and colours by, and copies\n"
        "# privacy: {secure_aggregation: true}   # what protects the messages: docs/privacy.md\n"
    )


def is_data(name: str | Path) -> bool:
    """Whether a name is of data, a folder or a pattern of files, and of no scenario."""
    path = Path(name).expanduser()
    folder = path.is_dir() and not (path / SCENARIO).is_file()  # else that of a run
    return ending(path) in (*ENDINGS, *SHEETS) or folder or glob.has_magic(str(name))


def _read_all(content: Mapping[str, Any]) -> Scenario:
    """The scenario without what is refused for what these data may not even have."""
    return reading.read({name: section for name, section in content.items() if name != "privacy"})


def _site(
    path: Path, label: str | None, matrix: str | None, *, needed: bool, progress: Progress
) -> str | None:
    """The column that says whose a row is, by its name."""
    choice = Choice(label=label, categories="one-hot", matrix=matrix)
    if ending(path) in TABLES:
        kinds = survey(path, choice, progress).kinds
        columns, likely = list(kinds), [column for column, kind in kinds.items() if kind == "text"]
    else:
        columns = likely = list(read_file(path, choice).unread)
    by_name = {column.casefold(): column for column in columns}
    found = next((by_name[name] for name in SITES if name in by_name), None)
    if found is None and needed:
        raise DataError(
            f"Cannot tell which site each row of {path.name} belongs to. Pass `--site COLUMN`, or give a folder with"
            f" one file per site. Columns that could name the site: {listing(likely) or 'none'}."
        )
    return found


def _lacks(holdings: Holdings) -> bool:
    """Whether a value is missing, of the rows of clients or of any others, or a label."""
    held_out = None if holdings.held_out is None else holdings.held_out.rows
    others = [holdings.public, held_out]
    if holdings.labels is not None and NO_LABEL in holdings.label_names:
        return True
    return any(lacking.any() for lacking in holdings.gaps) or any(
        rows is not None and bool(np.isnan(rows).any()) for rows in others
    )


def _name(data: str | Path) -> str:
    stem = Path(str(data).rstrip("/")).name.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:50] or "own-data"


def write_new(path: Path, text: str) -> Path:
    """Write a file that is not there yet.

    Raises
    ------
    OutputError
        If it is, is not called .yaml, or cannot be written.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise OutputError(
            f"The scenario is YAML, and {path} does not end in .yaml: name such a file with --out."
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(
            f"{path} is there already, and is left as it is: name another file with --out."
        ) from None
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror}): name another place with --out."
        ) from error
    return path
