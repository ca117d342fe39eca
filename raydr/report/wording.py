"""Plain-language texts for numbers and findings of the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from raydr.errors import ScenarioError
from raydr.plain import short_number
from raydr.privacy.ledger import OTHER_CLIENTS, Entry, Public, RecordContent
from raydr.runfolder.reading import RunFolder

if TYPE_CHECKING:
    from raydr.metrics import Metric
    from raydr.privacy.accounting import Adversary
    from raydr.privacy.statement import Against

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

COSTLESS = {
    Public.SHAPES: "row counts are treated as public",
    Public.EMPTY: "it contains nothing about records",
    Public.RANDOM: "it depends only on random numbers",
    Public.SEALED: "only clients can read it",
    Public.APART: "its rows are set apart and not mapped",
}
"""Why a message costs no privacy."""

REVEALING = ("per-record", "per-client", "aggregate")
"""Granularities, the most revealing first."""

_LONGEST_NUMBER = 8
"""Longest number, in characters, that is shown unchanged."""
_RECOVERED = "the server recovered the geometry from the messages."
NARROW = "\u202f"  # the narrow no-break space that binds a number to its unit


def count(value: int) -> str:
    """Write a count with thousands marked: ``1,797``."""
    return f"{value:,}"


def plural(value: int, thing: str) -> str:
    """Write a count and its noun: ``1 client``, ``10 clients``."""
    return f"{value:,} {thing}" if value == 1 else f"{value:,} {thing}s"


def size(value: float) -> str:
    """Write bytes in decimal units, three digits: ``512 B``, ``25.6 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000.0
    return f"{value:.0f}{NARROW}B" if unit == "B" else f"{value:.3g}{NARROW}{unit}"


def duration(seconds: float) -> str:
    """Write a duration: ``0.12 s``, ``8.7 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if 0 < seconds < 0.01:
        return f"< 0.01{NARROW}s"
    if seconds < 59.95:
        return f"{seconds:.2g}{NARROW}s" if seconds < 10 else f"{seconds:.1f}{NARROW}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NARROW}min {rest:02d}{NARROW}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{NARROW}h {minutes:02d}{NARROW}min"


def measure(value: float | None) -> str:
    """Write a metric's value: four decimals, a dash when there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4f}".replace("-", "−") if abs(value) < 1000 else f"{value:.4g}"


def estimated(value: float | None, error: float | None) -> str:
    """Write a metric's value, with its standard error where it has one: ``0.412 ± 0.003``."""
    if value is None or error is None or not math.isfinite(error) or abs(value) >= 1000:
        return measure(value)
    digits = 4 if error == 0.0 else min(max(math.ceil(-math.log10(error)), 2), 8)
    return f"{value:.{digits}f} ± {error:.{digits}f}".replace("-", "−")


def estimated_share(share: float, error: float, of: str) -> str:
    """Write a share of ``of`` and its standard error: ``About 4.8 % (± 0.3 %) of 70,000 rows``."""
    return f"About {percent(share)} (± {percent(error)}) of {of}"


def of_sample(run: RunFolder) -> str:
    """Explain the standard errors; return an empty text if every value is computed on all rows."""
    rows = run.measures.sampled_rows
    if rows is None:
        return ""
    return (
        f"Values are estimates from a sample of {plural(rows, 'row')}, the same for every map; ± is their standard"
        " error."
    )


def percent(ratio: float) -> str:
    """Write a ratio as a percentage: ``98.9 %``."""
    return f"{100.0 * ratio:.1f}{NARROW}%"


def method_name(scenario: Mapping[str, object]) -> str:
    """Return the method's name as its paper writes it, or ``method.kind`` if it is unknown."""
    from raydr.methods import METHODS

    method = scenario.get("method")
    kind = (
        str(method.get("kind", "an unnamed method")) if isinstance(method, Mapping) else "an unnamed method"
    )
    return METHODS[kind].title if kind in METHODS else kind


def map_titles(scenario: Mapping[str, object]) -> tuple[str, str]:
    """Return the titles of the run's map and of the pooled-data map; they say if the label moves rows."""
    method, data = scenario.get("method"), scenario.get("data")
    pooled = isinstance(method, Mapping) and method.get("kind") == "central"
    steered = ", moved by the label" if isinstance(data, Mapping) and data.get("target_weight") else ""
    ours = "Pooled-data map" if pooled else "Federated map"
    return f"{ours}{steered}", f"Pooled-data map, for reference{steered}"


def brief(name: str) -> str:
    """Shorten a name that is a number to four digits: ``−2.467`` for ``-2.4671310147587926``."""
    if len(name) <= _LONGEST_NUMBER:
        return name
    try:
        number = float(name)
    except ValueError:
        return name
    return f"{number:.4g}".replace("-", "−") if math.isfinite(number) else name


def objective(scenario: Mapping[str, object], course: Sequence[float]) -> str:
    """Return the method's explanation of its objective if the objective rises, else an empty text."""
    from raydr.methods import METHODS

    method = scenario.get("method")
    kind = str(method.get("kind")) if isinstance(method, Mapping) else ""
    if kind not in METHODS or len(course) < 2 or course[-1] <= min(course):
        return ""
    return METHODS[kind].settings.objective


def meaning(name: str) -> str:
    """Explain a metric that also measures leakage; empty for any other."""
    perfect = _perfect(name)
    return f"This also measures leakage: {_RECOVERED} {perfect}." if perfect else ""


def leakage(names: Iterable[str]) -> str:
    """Explain in one note which of the metrics also measure leakage; empty if none does."""
    titles: dict[str, list[str]] = {}
    for name in names:
        titles.setdefault(_perfect(name), []).append(metric_title(name))
    titles.pop("", None)
    if not titles:
        return ""
    parts = [f"{', '.join(some)}: {perfect}." for perfect, some in titles.items()]
    return f"Some metrics also measure leakage: {_RECOVERED} {' '.join(parts)}"


def _perfect(name: str) -> str:
    """Say what a perfect value means for leakage; empty for a metric that does not measure leakage."""
    known = metric(name)
    if known is None or not known.perfect:
        return ""
    return f"{1 if known.higher_is_better else 0} means that it has {known.perfect}"


def moment(iso: str) -> str:
    """Write an ISO time: ``3 February 2026, 10:22 UTC``; return any other text unchanged."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}, {at:%H:%M} {at.tzname() or ''}".rstrip()


def federation(kind: str, actors: int) -> str:
    """Describe where the clients ran."""
    match kind:
        case "ray":
            return f"clients in {plural(actors, 'Ray actor')}"
        case "inline":
            return "clients in one process, without Ray"
        case _:
            return "clients at their sites"


def metric(name: str) -> Metric | None:
    """Return a metric by name, or None if it is unknown."""
    from raydr.metrics import metric_named

    try:
        return metric_named(name)
    except ScenarioError:
        return None


def metric_title(name: str) -> str:
    """Return the title of a metric, or its name if it is unknown."""
    known = metric(name)
    return known.title if known is not None else name


def short_title(name: str) -> str:
    """Return the acronym of a metric that has one, ``NPA-10``, or its title."""
    return name.replace("_", "-").upper() if name.startswith(("npa_", "ca_")) else metric_title(name)


def higher_is_better(name: str) -> bool | None:
    """Return whether higher values are better; None if the metric is unknown or has no direction."""
    known = metric(name)
    return known.higher_is_better if known is not None else None


def promise(message: Entry) -> str:
    """Write the differential privacy claimed for a message: ``ε = 2, δ = 1e-5``, or why there is no claim."""
    if message.epsilon is None:
        return f"no cost: {COSTLESS[message.public]}" if message.public is not None else "none claimed"
    parts = [f"ε = {message.epsilon:g}"]
    if message.delta is not None:
        parts.append(f"δ = {short_number(message.delta)}")
    return ", ".join(part.replace(" ", "\u00a0") for part in parts)


def protection(message: Entry) -> str:
    """Write the protection of a message: ``Gaussian noise of level 0.1 on distances``, or ``none``."""
    return message.protection.words if message.protection is not None else "none"


def epsilon(value: float | None) -> str:
    """Write an epsilon: ``1``, or ``∞`` for None."""
    return "∞" if value is None else f"{value:.3g}"


def cost(run: RunFolder) -> str:
    """Return the privacy cost of the whole run in words."""
    privacy = run.privacy
    at = f"δ = {short_number(privacy.delta)}"
    if privacy.epsilon is not None and not any(release.releases for release in privacy.releases):
        return "No data about any record left a client, so the run cost no privacy."
    kept = "a client" if privacy.unit == "client" else "a record"
    unit = {
        "zero-out": f"whether {kept} takes part or adds zero to every sum (zero-out)",
        "replace-one": f"whether {kept} takes part or another in its place (replace-one)",
    }.get(privacy.relation or "", "")
    if privacy.epsilon is not None:
        return (
            f"The whole run is differentially private with ε = {epsilon(privacy.epsilon)} at {at}. This bounds what"
            f" anyone can learn about {unit}. The number of rows of each client is treated as public."
        )
    if not any(release.epsilon for release in privacy.releases):
        return "The whole run has ε = ∞: no finite epsilon holds for it."
    accounted = epsilon(privacy.epsilon_accounted)
    return (
        f"The whole run has ε = ∞. The releases whose noise carries a claim cost ε = {accounted} at {at} ({unit})."
        " This would be the cost of the whole run if nothing else had left the clients."
    )


ADVERSARY: Mapping[Adversary, str] = {
    "server": "the server",
    "client": "one curious client",
    "colluders": "the server with colluding clients",
    "outsider": "an outsider",
}
"""Adversaries in words."""


def by_adversary(costs: Mapping[Adversary, Against]) -> str:
    """Write the accounted epsilon against each adversary: ``the server 0.88, one curious client ...``."""
    return ", ".join(f"{ADVERSARY[who]} {epsilon(against.accounted)}" for who, against in costs.items())


def by_revelation(message: Entry) -> tuple[bool, int, bool, bool, int]:
    """Return a sort key for messages: most revealing first, unprotected first, then by bytes.

    Messages that the server cannot read follow those that it can, and public ones are last.
    """
    harmless, covered = message.public is not None, message.protection is not None
    sealed = message.seen_by == OTHER_CLIENTS
    return harmless, REVEALING.index(message.granularity), covered, sealed, -message.bytes


def summary(run: RunFolder) -> str:
    """Return a sentence on what was mapped and how faithful the map is."""
    method = run.scenario.get("method")
    settings = method if isinstance(method, Mapping) else {}
    name = method_name(run.scenario)
    mapped = name[0].upper() + name[1:]
    for thing in ("landmark", "anchor"):
        if f"{thing}s" in settings and (number := _points_used(run) or settings[f"{thing}s"]):
            mapped += f" with {plural(number, thing)}"
    rows, clients = plural(len(run.federated), "row"), plural(run.client_count, "client")
    return f"{mapped}: {rows} at {clients}; {_faithfulness(run)}."


def _points_used(run: RunFolder) -> int:
    """Count the landmarks or anchors that records sent their distances to; 0 if the ledger does not say."""
    return max(
        (
            entry.fixed.points
            for entry in run.ledger
            if entry.direction == "up" and entry.tells == RecordContent.DISTANCES and entry.fixed is not None
        ),
        default=0,
    )


def _faithfulness(run: RunFolder) -> str:
    # Skip metrics of what the server recovered: a small error there is leakage, not quality.
    federated = {
        name: value
        for name, value in run.measures.federated.items()
        if value is not None and not meaning(name)
    }
    central = run.measures.central
    preferred = [
        "npa_10",
        *(name for name in federated if name.startswith("npa_")),
        "trustworthiness",
        *federated,
    ]
    name = next((name for name in preferred if name in federated), None)
    if name is None:
        return "no metric of the map was computed"
    value, bound = federated[name], central.get(name)
    title = short_title(name)
    if bound is None:
        estimate = estimated(value, run.measures.error("federated", name))
        return f"{title} {estimate}, without a pooled-data map to compare with"
    values = f"{title} {value:.3f} against {bound:.3f}"
    if run.measures.sampled_rows is not None:
        values += f", estimated from a sample of {plural(run.measures.sampled_rows, 'row')}"
    if name.startswith("npa_") and bound > 0:
        return f"the federated map keeps {_as_many(value / bound)} ({values})"
    return f"{values} for the pooled-data map"


def _as_many(ratio: float) -> str:
    """Compare how many true neighbours the federated and the pooled-data map keep."""
    if ratio < 0.995:
        return f"{percent(ratio)} as many true neighbours as the pooled-data map"
    if ratio <= 1.005:
        return "as many true neighbours as the pooled-data map"
    return f"{ratio:.2f} times as many true neighbours as the pooled-data map"


def arrow(name: str) -> str:
    """Return ``↑`` or ``↓`` for the direction in which a metric improves, empty if unknown."""
    better = higher_is_better(name)
    return "" if better is None else "↑" if better else "↓"
