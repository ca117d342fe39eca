"""What was mapped, in words: which rows and columns of what, and what became of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.data import Harmonized, Provenance
from raydr.plain import listed
from raydr.report import wording
from raydr.runfolder.records import DATA

MOST_COLUMNS, FEW_COLUMNS = 50, 12  # named of at most so many, and of more; data.json has them all
MOST_NAMES = 12  # of clients and columns in a sentence

SCALINGS = {
    "none": "none: the columns as they are",
    "standard": "standard: each column to mean 0 and standard deviation 1",
    "minmax": "minmax: each column from 0 to 1",
    "unit": "unit: each row to length 1",
}

HARMONIZINGS = {
    "center": "center: each site's columns to the mean of all",
    "scale": "scale: each site's columns to the mean and the standard deviation of all",
    "combat": "combat: each site's columns to the mean and the standard deviation of all, as far as its other columns"
    " say so",
}
REAL_DIFFERENCES = "What really differs between sites goes too, unless it is kept (data.harmonize.keep)."

NOTICE = "To look at"
"""What a notice is called among the facts."""

HASHED = {"file": "the file's bytes", "numbers": "the numbers that were read"}


@dataclass(frozen=True)
class Fact:
    """A line of the page: what it is about, and what there is to say."""

    name: str
    text: str


def facts(data: Provenance) -> list[Fact]:
    """Lines on rows, columns and scaling; those that say nothing are left out."""
    said = [Fact("Rows read", f"{data.read:,} from {_origin(data)}")]
    if data.dropped:
        said.append(Fact("Dropped: a value is missing", f"{data.dropped:,}{_by_client(data)}"))
    if data.filling is not None:
        said.append(Fact("Filled in: a value was missing", _filled(data)))
    if data.set_apart:
        said.append(Fact("Set apart as anchors", f"{data.set_apart:,}"))
    if data.held_out:
        said.append(Fact("Held out, and placed on the map afterwards", f"{data.held_out:,}"))
    if data.not_drawn:
        said.append(Fact("Not drawn: data.rows asks for fewer", f"{data.not_drawn:,}"))
    said.append(Fact("Rows mapped", f"{data.mapped:,}"))
    if data.anchors is not None:
        anchors = data.anchors
        said.append(
            Fact("Anchors", f"{wording.plural(anchors.rows - anchors.dropped, 'row')} of {anchors.name}")
        )
    names = _columns(data.columns) if data.named else "which have no names"
    said.append(Fact("Columns mapped", f"{len(data.columns):,}: {names}"))
    left_out = {
        f"{column} ({why})": None for source in data.sources for column, why in source.left_out.items()
    }
    if left_out:
        said.append(Fact("Columns left out", listed(list(left_out), MOST_COLUMNS)))
    if data.harmonized is not None:
        said.append(Fact("Sites harmonized", harmonized(data.harmonized)))
    said.append(Fact("Scaling", SCALINGS.get(data.scaling, data.scaling)))
    said += [Fact(NOTICE, notice) for notice in data.notices]
    return said


def _columns(names: Sequence[str]) -> str:
    """All columns by name; of a table of very many the first few, and where all are."""
    if len(names) <= MOST_COLUMNS:
        return ", ".join(names)
    return f"{listed(names, FEW_COLUMNS)}, all in {DATA}"


def harmonized(found: Harmonized) -> str:
    """How sites were adjusted to each other, and how far they stood apart before and after."""
    said = [HARMONIZINGS.get(found.kind, found.kind)]
    if found.keep:
        said.append(f"what goes with {listed(found.keep, MOST_NAMES)} was kept")
    if found.unchanged:
        said.append(f"left as they were: {listed(found.unchanged, MOST_NAMES)}")
    text = "; ".join(said) + "."
    pairs = []
    for name, before in found.before.items():
        after = found.after.get(name)
        if before is not None and after is not None:
            pairs.append(
                f"{wording.metric_title(name).lower()} {wording.measure(before)} before, {wording.measure(after)} after"
            )
    if pairs:
        text += f" Of the rows: {'; '.join(pairs)}."
    return f"{text} {REAL_DIFFERENCES}"


def line(data: Provenance) -> str:
    """The same in a sentence."""
    rows = wording.plural(data.mapped, "row")
    part = rows if data.mapped == data.read else f"{data.mapped:,} of {wording.plural(data.read, 'row')}"
    dropped = (
        f"; {data.dropped:,} dropped, where a value is missing{_by_client(data)}" if data.dropped else ""
    )
    if data.filled:
        count = sum(sum(columns.values()) for columns in data.filled.values())
        dropped += f"; {wording.plural(count, 'missing value')} filled in by the {data.filling}"
    held_out = f"; {wording.plural(data.held_out, 'row')} held out" if data.held_out else ""
    return (
        f"{part} of {_origin(data)}, {wording.plural(len(data.columns), 'column')},"
        f" {'no' if data.scaling == 'none' else data.scaling} scaling{held_out}{dropped}."
    )


def hashes(data: Provenance) -> list[Fact]:
    """Return the hash of each file that was read: for the owner of the data, and on no page."""
    return [
        Fact(f"SHA-256 of {source.name}", f"{source.sha256}, of {HASHED[source.hashed]}")
        for source in data.everything_read
        if source.sha256 is not None
    ]


def _origin(data: Provenance) -> str:
    only, *others = data.sources
    return f"{len(data.sources):,} files of the clients' own" if others else only.name


def _filled(data: Provenance) -> str:
    """How many values of which column, and whose, the column that lacks most first."""
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
