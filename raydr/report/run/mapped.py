"""Texts on the mapped data: rows, columns, scaling, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.data import Harmonized, Provenance
from raydr.plain import listed
from raydr.report import wording
from raydr.runfolder.records import DATA

MOST_COLUMNS, FEW_COLUMNS = 50, 12  # up to 50 columns are all named, of more the first 12; data.json has all
MOST_NAMES = 12  # clients or columns named in a sentence

SCALINGS = {
    "none": "none: columns are unchanged",
    "standard": "standard: each column, of numbers or words, has mean 0 and variance 1",
    "minmax": "minmax: each column ranges from 0 to 1",
    "survey": "by a noisy survey: columns with numbers or words that exceed the noise, each with variance 1 / columns",
    "maxabs": "maxabs: the largest absolute value of each column is 1",
}

METRICS = {
    "cosine": "cosine: each row has length 1",
    "correlation": "correlation: each row has mean 0 and length 1",
    "hellinger": "hellinger: each row holds square roots of the shares of its counts",
    "hamming": "hamming: the squared distance is the share of columns with another category",
    "gower": "gower: the squared distance is the mean over columns of the difference as a part of the range, and 1 for"
    " other words",
}

HARMONIZINGS = {
    "center": "center: each site's columns are moved to the mean of all sites",
    "scale": "scale: each site's columns get the mean and the standard deviation of all sites",
    "combat": "combat: each site's columns are moved towards the mean and the standard deviation of all sites, by as"
    " much as the site's other columns support",
}
REAL_DIFFERENCES = "This also removes real differences between sites, unless data.harmonize.keep names them."

NOTICE = "Notice"
"""Name of a notice among the facts."""

HASHED = {"file": "the file's bytes", "numbers": "the numbers that were read"}


@dataclass(frozen=True)
class Fact:
    """A line of the page: a name and a text."""

    name: str
    text: str


def facts(data: Provenance) -> list[Fact]:
    """Return lines on rows, columns and scaling, without empty ones."""
    found = [Fact("Rows read", f"{data.read:,} from {_origin(data)}")]
    if data.dropped:
        found.append(Fact("Dropped for missing values", f"{data.dropped:,}{_by_client(data)}"))
    if data.filling is not None:
        found.append(Fact("Missing values filled in", _filled(data)))
    if data.set_apart:
        found.append(Fact("Set apart as anchors", f"{data.set_apart:,}"))
    if data.held_out:
        found.append(Fact("Held out and placed on the map later", f"{data.held_out:,}"))
    if data.withdrawn:
        found.append(Fact("Of sites that take no part (clients.without)", f"{data.withdrawn:,}"))
    if data.not_drawn:
        found.append(Fact("Not sampled (data.rows)", f"{data.not_drawn:,}"))
    found.append(Fact("Rows mapped", f"{data.mapped:,}"))
    if data.anchors is not None:
        anchors = data.anchors
        found.append(
            Fact("Anchors", f"{wording.plural(anchors.rows - anchors.dropped, 'row')} of {anchors.name}")
        )
    columns = _read_columns(data)
    names = _columns(columns) if data.named else "unnamed"
    found.append(Fact("Columns mapped", f"{len(columns):,}: {names}"))
    left_out = {
        f"{column} ({why})": None for source in data.sources for column, why in source.left_out.items()
    }
    if left_out:
        found.append(Fact("Columns left out", listed(list(left_out), MOST_COLUMNS)))
    if data.harmonized is not None:
        found.append(Fact("Sites harmonized", harmonized(data.harmonized)))
    found.append(Fact("Scaling", SCALINGS.get(data.scaling, data.scaling)))
    if data.metric != "euclidean":
        found.append(Fact("Metric", METRICS.get(data.metric, data.metric)))
    found += [Fact(NOTICE, notice) for notice in data.notices]
    return found


def _read_columns(data: Provenance) -> tuple[str, ...]:
    """Return the names of the mapped features; of columns of raw cells, without the codes of words."""
    codes = {coding.names(column)[1] for column, coding in data.codings.items() if coding.has_code}
    return tuple(name for name in data.columns if name not in codes)


def _columns(names: Sequence[str]) -> str:
    """List the columns by name; for a long list, the first few and the file that has all."""
    if len(names) <= MOST_COLUMNS:
        return ", ".join(names)
    return f"{listed(names, FEW_COLUMNS)}, all in {DATA}"


def harmonized(found: Harmonized) -> str:
    """Describe how sites were adjusted to each other, and the site effect before and after."""
    parts = [HARMONIZINGS.get(found.kind, found.kind)]
    if found.keep:
        parts.append(f"differences explained by {listed(found.keep, MOST_NAMES)} were kept")
    if found.unchanged:
        parts.append(f"unchanged: {listed(found.unchanged, MOST_NAMES)}")
    text = "; ".join(parts) + "."
    pairs = []
    for name, before in found.before.items():
        after = found.after.get(name)
        if before is not None and after is not None:
            pairs.append(
                f"{wording.metric_title(name).lower()} {wording.measure(before)} before, {wording.measure(after)} after"
            )
    if pairs:
        text += f" Measured on the rows: {'; '.join(pairs)}."
    return f"{text} {REAL_DIFFERENCES}"


def line(data: Provenance) -> str:
    """Summarise the mapped data in a sentence."""
    rows = wording.plural(data.mapped, "row")
    part = rows if data.mapped == data.read else f"{data.mapped:,} of {wording.plural(data.read, 'row')}"
    dropped = f"; {data.dropped:,} dropped for missing values{_by_client(data)}" if data.dropped else ""
    if data.filled:
        count = sum(sum(columns.values()) for columns in data.filled.values())
        dropped += f"; {wording.plural(count, 'missing value')} filled in by the {data.filling}"
    metric = "" if data.metric == "euclidean" else f"; {data.metric} distances"
    held_out = f"; {wording.plural(data.held_out, 'row')} held out" if data.held_out else ""
    return (
        f"{part} of {_origin(data)}, {wording.plural(len(_read_columns(data)), 'column')},"
        f" {'no' if data.scaling == 'none' else data.scaling} scaling{metric}{held_out}{dropped}."
    )


def hashes(data: Provenance) -> list[Fact]:
    """Return the hash of each file that was read. It is for the owner of the data and is not on the page."""
    return [
        Fact(f"SHA-256 of {source.name}", f"{source.sha256}, of {HASHED[source.hashed]}")
        for source in data.everything_read
        if source.sha256 is not None
    ]


def _origin(data: Provenance) -> str:
    only, *others = data.sources
    return f"{len(data.sources):,} client files" if others else only.name


def _filled(data: Provenance) -> str:
    """Count the filled values by column and client, the column with most missing values first."""
    by_column: dict[str, dict[str, int]] = {}
    for client, columns in data.filled.items():
        for column, count in columns.items():
            by_column.setdefault(column, {})[client] = count
    most = sorted(by_column.items(), key=lambda lacking: -sum(lacking[1].values()))
    each = [
        f"{column} {sum(lacking.values()):,}"
        f" ({listed([f'{client} {count:,}' for client, count in lacking.items()], MOST_NAMES)})"
        for column, lacking in most
    ]
    total = sum(sum(lacking.values()) for lacking in by_column.values())
    return f"{total:,} by the {data.filling} of all clients" + (
        f": {listed(each, MOST_COLUMNS)}" if each else ""
    )


def _by_client(data: Provenance) -> str:
    lost = [f"{name} {count:,}" for name, count in data.dropped_by_client.items()]
    return f" ({listed(lost, MOST_NAMES)})" if lost else ""
