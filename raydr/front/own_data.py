"""Scenarios for a user's own tables: how raydr interprets a table, and the scenario that maps it."""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from raydr.data.files.dialect import Dialect
from raydr.data.loading import ENDINGS, NO_LABEL, SHEETS, TABLES, TEXTS, ending, read_file, survey
from raydr.data.site import files_of
from raydr.data.survey.codebook import Codebook, read_codebook
from raydr.data.survey.columns import Choice, listing
from raydr.data.survey.raw_cells import raw_columns
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.extras import require_packages
from raydr.front.parameters import protected
from raydr.geometry.points import Progress, unheard
from raydr.journal import Listener
from raydr.plain import listed, plain
from raydr.report.colouring import colouring
from raydr.report.run.mapped import Fact, facts, hashes
from raydr.runfolder.making import require_free
from raydr.runfolder.records import SCENARIO
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import ClientData, dealt_out
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.schema import reading
from raydr.scenarios.schema.document_store import FOR_ROWS, kind_of_object
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.dissimilarity import AS_READ, BY_COLUMN

METHOD, PRIVATE = "fed-umap", "private-map"
"""Default method for a user's own data, and with an epsilon."""
SITES = ("site", "hospital", "client", "clinic", "centre", "center", "station", "institution")
"""Names of columns that are taken as the site column if the user names none."""
CLIENTS = 3
"""Number of clients for a table without a site column."""
_DEALING = ("clients.count", "clients.partition", "clients.sites")
_MOST_SITES = 20  # listed in one line


@dataclass(frozen=True)
class OwnData:
    """A user's own data and the scenario that maps them.

    Attributes
    ----------
    scenario : Scenario
        The scenario.
    content : mapping
        Keys of the scenario that differ from the defaults, to be written and changed.
    facts : tuple of Fact
        How raydr interprets the data.
    """

    scenario: Scenario
    content: Mapping[str, Any]
    facts: tuple[Fact, ...]


def own_data(
    data: str | Path,
    *,
    site: str | None = None,
    label: str | None = None,
    time: str | None = None,
    codebook: str | Path | None = None,
    method: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    site_needed: bool = True,
    progress: Progress = unheard,
) -> OwnData:
    """Read all data and make the scenario that maps them; arguments as for :func:`raydr.map`.

    By default, missing values are filled in with the median, and text columns of few words become zeros and ones.
    Numbers are scaled to standard deviation 1. ``overrides`` changes that. With ``epsilon``, a noisy survey does all
    of this, and every message has noise. Without a site column, rows are dealt to
    :data:`CLIENTS` clients at random if ``site_needed`` is False.

    Raises
    ------
    DataError
        If the data cannot be used, or a needed site column is missing.
    ScenarioError
        If the method or an override is invalid.
    """
    return own_rows(
        data,
        site=site,
        label=label,
        time=time,
        codebook=codebook,
        method=method,
        epsilon=epsilon,
        delta=delta,
        overrides=overrides,
        site_needed=site_needed,
        progress=progress,
    )[0]


def own_rows(
    data: str | Path,
    *,
    site: str | None,
    label: str | None,
    time: str | None = None,
    codebook: str | Path | None,
    method: str | None,
    overrides: Mapping[str, Any] | None,
    epsilon: float | None = None,
    delta: float | None = None,
    site_needed: bool = True,
    progress: Progress = unheard,
) -> tuple[OwnData, ClientData]:
    """Return :func:`own_data` and the rows that were read."""
    if not isinstance(data, str | PathLike):
        raise DataError(f"expected the path of a table, got {kind_of_object(data)}: {FOR_ROWS}.")
    files = files_of(data)
    book = Codebook(()) if codebook is None else read_codebook(Path(codebook))
    label, time = label or book.with_role("label"), time or book.with_role("time")
    given = dict(overrides or {})
    method = _private(method, epsilon, delta) if epsilon is not None or delta is not None else method
    content: dict[str, Any] = {
        "name": _name(data),
        "data": {"label": label, "scale": "standard", "missing": "median", "categories": "one-hot"},
        "clients": {},
        "method": {"kind": method or METHOD},
        "compare": ["central"],
    }
    if label is None:
        del content["data"]["label"]
    if time is not None:
        content["data"]["time"] = time
    if codebook is not None:
        content["data"]["codebook"] = str(codebook)
    if identity := book.with_role("identity"):
        content["data"]["id"] = identity
    if files is None:
        content["data"] = {"path": str(data)} | content["data"]
    else:
        content["clients"]["sites"] = [{"path": str(file)} for file in files]
    if epsilon is not None:
        content["method"]["epsilon"] = epsilon
    for key, value in given.items():
        reading.override(content, key, value)
    if content["method"]["kind"] == PRIVATE and not content["method"].keys() & {"bounds", "clip"}:
        for key in ("scale", "missing", "categories"):  # a noisy survey prepares the columns
            if f"data.{key}" not in given:
                content["data"].pop(key, None)
    if (
        "scale" in content["data"]
        and "data.scale" not in given
        and content["data"].get("metric") in (*AS_READ, *BY_COLUMN)
    ):
        del content["data"]["scale"]  # these metrics compare columns as they are read
    dealt = [key for key in given if key == "clients" or key.startswith(_DEALING)]
    column: str | None = ""
    if files is None and not dealt:
        site = site or book.with_role("site")
        with _options_in_errors():
            column = site or _site(
                Path(data),
                Choice(label=label, time=time, categories="one-hot", matrix=content["data"].get("matrix")),
                needed=site_needed,
                progress=progress,
            )
        content["clients"] |= (
            {"count": CLIENTS} if column is None else {"partition": {"kind": "by-column", "column": column}}
        )
    elif site is not None:
        raise ScenarioError(
            f"--site {site} has no effect: " + ("each file is one site" if files else f"{dealt[0]} is set as well")
            + ". Leave --site out."
        )  # fmt: skip
    with _options_in_errors():
        client_data = held(_read_all(content), progress=progress)
    if "data.missing" not in given and not _lacks(client_data):
        content["data"].pop("missing", None)
    if epsilon is not None:
        more, privacy = protected(len(client_data.names))
        content["method"] = more | content["method"]
        own = content.get("privacy", {})
        content["privacy"] = privacy | ({} if delta is None else {"delta": delta}) | own
    scenario = reading.read(content)
    scenario.method.check(client_data.rows, client_data.features)
    client_data = replace(client_data, filling=scenario.data.filling)
    facts = described(scenario, client_data)
    if column is None:
        facts = (Fact("Site of each row", "no column names it, so `raydr map` needs `--site COLUMN`"), *facts)
    return OwnData(scenario, content, facts), client_data


def _private(method: str | None, epsilon: float | None, delta: float | None) -> str:
    """Return the method of a map with an epsilon; raise ScenarioError if the options do not fit it."""
    if epsilon is None:
        raise ScenarioError(
            "--delta belongs to --epsilon, which is not given: pass both, or leave --delta out."
        )
    if method not in (None, PRIVATE):
        raise ScenarioError(
            f"--epsilon is for the whole run of method {PRIVATE}, and --method is {method}: leave --method out, or"
            " leave --epsilon out and set privacy.noise (docs/privacy.md)."
        )
    if not 0 < epsilon < math.inf:
        raise ScenarioError(f"--epsilon is {epsilon:g}: expected a number above 0, such as 1.")
    if delta is not None and not 0 < delta < 1:
        raise ScenarioError(f"--delta is {delta:g}: expected a number between 0 and 1, such as 1e-5.")
    return PRIVATE


def tuned(
    own: OwnData, rows: int, *, out: Path | None, address: str | None, listener: Listener
) -> tuple[OwnData, str, Path]:
    """Choose the neighbourhood size of the method by a sweep over five.

    Parameters
    ----------
    own : OwnData
        The data and the scenario.
    rows : int
        Number of rows.
    out : Path or None
        The run folder. The sweep folder's name is this, followed by ``-tune``.
    address, listener
        As for :func:`raydr.run`.

    Returns
    -------
    own : OwnData
        With the chosen size in the scenario.
    reason : str
        Why it was chosen, as a sentence.
    folder : Path
        The sweep folder.

    Raises
    ------
    RaydrError
        As :func:`raydr.tune.neighborhood.neighborhood_sweep` and :func:`raydr.tune.neighborhood.choice_of`.
    """
    from raydr.tune.neighborhood import choice_of, neighborhood_sweep
    from raydr.tune.sweeping import sweep

    tuning = neighborhood_sweep(own.scenario, own.content, rows)
    place = None
    if out is not None:
        require_free(out)  # before 25 runs
        place = out.with_name(f"{out.name}-tune")
    folder = sweep(tuning.sweep, out=place, address=address, listener=listener)
    choice = choice_of(tuning, folder)
    if choice.size == tuning.size:
        return own, choice.reason, folder
    content = reading.copied(own.content)
    reading.override(content, tuning.key, choice.size)
    return replace(own, scenario=reading.read(content), content=content), choice.reason, folder


@contextmanager
def _options_in_errors() -> Iterator[None]:
    """Replace keys with options in the text of errors, for users who gave options."""
    words = {
        "clients.partition.column": "--site",
        "data.label": "--label",
        "data.time": "--time",
        "data.codebook": "--codebook",
    }
    try:
        yield
    except DataError as error:
        text = re.sub("|".join(map(re.escape, words)), lambda knob: words[knob[0]], str(error))
        raise DataError(text) from error.__cause__


def held(scenario: Scenario, data_dir: Path | None = None, *, progress: Progress = unheard) -> ClientData:
    """Read the data that a run of the scenario would read, and start nothing.

    Raises
    ------
    ScenarioError, DataError
        If the run would refuse the data.
    """
    require_packages(scenario)
    if scenario.clients.deployed:
        raise DataError(
            "clients.deployed names sites that read their own files: run `raydr site dry-run` at a site."
        )
    if not scenario.clients.sites:
        client_data = dealt_out(scenario, data_dir, progress=progress)
    else:
        away = [site for site in scenario.clients.sites if not Path(site.path).expanduser().exists()]
        if away and all(site.node is not None for site in away):
            raise DataError(f"{away[0].path} is on the node {away[0].node}: run the command on that node.")
        client_data = from_sites(scenario, InlineBackend())
    scenario.require_clients(len(client_data.names))
    scenario.method.check(client_data.rows, client_data.features)
    return client_data


def described(scenario: Scenario, client_data: ClientData) -> tuple[Fact, ...]:
    """Return how raydr interprets the data, one fact for each aspect."""
    sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names))
    each = [f"{name} {size:,}" for name, size in zip(client_data.names, sizes, strict=True)]
    partition = scenario.clients.partition
    column = getattr(partition, "column", None)
    by = f"by column {column}" if column else f"by partition {partition.kind}"
    by = "one file each" if scenario.clients.sites else by
    found = [Fact("Sites", f"{len(each):,}, {by}: {listed(each, _MOST_SITES)}")]
    if client_data.labels is None:
        by = "site" if client_data.times is None else "period"
        found.append(Fact("Label", f"none, so the map is coloured by {by}"))
    else:
        name = scenario.data.label or "the data's own"
        way = colouring("label", [client_data.label_names[code] for code in client_data.labels.tolist()])
        if way.kind == "values":
            low, high = way.ends
            text = f"a quantity from {low:g} to {high:g}, so the map is coloured by its values"
        else:
            classes = [f"{label} {count:,}" for label, count in zip(way.names, way.counts, strict=True)]
            text = listed(classes, _MOST_SITES)
        found.append(Fact("Label", f"{name}: {text}"))
    if client_data.times is not None:
        counts = np.bincount(client_data.times.period_of_row).tolist()
        periods = [f"{name} {count:,}" for name, count in zip(client_data.period_names, counts, strict=True)]
        found.append(Fact("Periods", f"{client_data.times.column}: {listed(periods, _MOST_SITES)}"))
    if client_data.words:
        words = [f"{column} ({listed(each, 6)})" for column, each in client_data.words.items()]
        found.append(Fact("Text as zeros and ones", listed(words, _MOST_SITES)))
    others = {
        name: coding
        for name, coding in client_data.codings.items()
        if coding.kind not in ("number", "words", "cell")
    }
    if others:
        each = [f"{name} ({coding})" for name, coding in others.items()]
        found.append(Fact("Kinds", listed(each, _MOST_SITES)))
    if scenario.method.surveys_columns:
        known = sum(column.is_known for column in raw_columns(client_data.layout))
        text = f"{len(client_data.layout.columns) - known} by the noisy survey of the run"
        found.append(Fact("Ranges and words", text + f", {known} from the codebook" * bool(known)))
    paths = [site.path for site in scenario.clients.sites] or [path for path in [scenario.data.path] if path]
    texts = [Path(path).expanduser() for path in paths if ending(Path(path)) in TEXTS]
    dialects = {str(Dialect.of(path)) for path in texts}
    if dialects:
        found.append(Fact("Text format", "; ".join(sorted(dialects))))
    data = client_data.provenance(scenario.scaling, scenario.data.metric)
    return (*found, *facts(data), *hashes(data), Fact("Method", scenario.method.kind))


def commented(taken: OwnData) -> str:
    """Return a scenario as YAML, with comments on the data and on keys to change."""
    content = dict(taken.content)
    # Column names may contain line breaks, which would end a comment.
    notes = "\n".join(f"# {plain(' '.join(f'{fact.name}: {fact.text}'.split()))}" for fact in taken.facts)
    sections = {name: reading.dump_yaml({name: content.pop(name)}) for name in list(content)}
    surveyed = taken.scenario.method.surveys_columns
    remarks = {
        "data": "# features: [...] maps only these columns. A noisy survey finds ranges, words and values for gaps.\n"
        if surveyed
        else "# features: [...] maps only these columns; missing: error, drop, mean or median;\n"
        "# categories: one-hot or leave-out; scale: none, standard, minmax or maxabs; holdout: 0.2 holds out a fifth;\n"
        "# metric: cosine, correlation, hellinger, hamming or gower;\n"
        "# harmonize: center, scale or combat removes differences between sites, also real ones.\n",
        "clients": "# How rows are dealt to clients: by a column, or sites: a list of files, one for each.\n",
        "method": "# All methods: raydr list methods; their keys: docs/scenarios.md.\n",
        "compare": "# Also map the pooled data: a reference that no federation has, not a bound.\n",
    }
    text = "".join(remarks.get(name, "") + section for name, section in sections.items())
    return (
        f"{notes}\n#\n# Run it with raydr run FILE; raydr plan FILE estimates what it needs. Paths are relative to the"
        f" current folder.\n\n{text}# show: [COLUMN]   # columns that the page shows and colours by; it copies them\n"
        + "# privacy: {secure_aggregation: true}   # protection of the messages: docs/privacy.md\n"
        * ("privacy" not in taken.content)
    )


def is_data(name: str | Path) -> bool:
    """Return whether a name is a data file, a folder or a pattern of files, not a scenario."""
    path = Path(name).expanduser()
    folder = path.is_dir() and not (path / SCENARIO).is_file()  # otherwise a run folder
    return ending(path) in (*ENDINGS, *SHEETS) or folder or glob.has_magic(str(name))


def _read_all(content: Mapping[str, Any]) -> Scenario:
    """Return the scenario without its privacy section, whose checks depend on the data."""
    return reading.read({name: section for name, section in content.items() if name != "privacy"})


def _site(path: Path, choice: Choice, *, needed: bool, progress: Progress) -> str | None:
    """Return the name of the site column; None if there is none and it is not needed."""
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


def _lacks(client_data: ClientData) -> bool:
    """Return whether a value or a label is missing, in rows of clients or in any others."""
    held_out = None if client_data.held_out is None else client_data.held_out.rows
    others = [client_data.public, held_out]
    if NO_LABEL in (*client_data.label_names, *client_data.period_names):
        return True
    return any(lacking.any() for lacking in client_data.gaps) or any(
        rows is not None and bool(np.isnan(rows).any()) for rows in others
    )


def _name(data: str | Path) -> str:
    stem = Path(str(data).rstrip("/")).name.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:50] or "own-data"


def with_codebook(own: OwnData, path: Path) -> OwnData:
    """Return the data with a codebook in their scenario."""
    data = {"missing": "median", **own.content["data"], "codebook": str(path)}  # codes may be missing values
    content = {**own.content, "data": data}
    return replace(own, content=content)


def write_new(
    path: Path, text: str, *, option: str = "--out", suffixes: tuple[str, ...] = (".yaml", ".yml")
) -> Path:
    """Write a new file, which ``option`` names.

    Raises
    ------
    OutputError
        If the file exists, does not end in one of the suffixes, or cannot be written.
    """
    if path.suffix not in suffixes:
        what = "scenario is YAML" if ".yaml" in suffixes else "codebook is CSV"
        raise OutputError(
            f"The {what}, but {path} does not end in {suffixes[0]}: name such a file with {option}."
        )
    try:
        with path.expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(
            f"{path} already exists and was not changed: name another file with {option}."
        ) from None
    except OSError as error:
        raise OutputError(
            f"Cannot write {path} ({error.strerror}): name another place with {option}."
        ) from error
    return path
