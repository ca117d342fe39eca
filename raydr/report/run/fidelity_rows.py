"""Metrics that a federation estimates without pooling, next to those of all rows, as the page and the terminal show."""

from __future__ import annotations

from dataclasses import dataclass

from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import QUERY_ROWS, FidelityMeasures


@dataclass(frozen=True)
class FidelityLine:
    """An estimate, where it comes from, and the metric of all rows, as text."""

    title: str
    source: str
    estimate: str
    pooled: str


def sentence(run: RunFolder) -> str:
    """Tell the first estimate of each source; "" if there are none."""
    parts = []
    for source, found in run.measures.fidelity.items():
        name, first = next(iter(found.metrics.items()))
        pooled = f" (all rows: {first.pooled:.3f})" if first.pooled is not None else ""
        value = wording.estimated(first.estimate, first.standard_error or None)
        parts.append(f"{wording.short_title(name)} {value}{pooled} from {_source(source, found)}")
    return f"Without pooling rows, the federation estimates {' and '.join(parts)}." if parts else ""


def lines(run: RunFolder) -> list[FidelityLine]:
    """Return one line for each estimate; none if there are none."""
    return [
        FidelityLine(
            title=wording.metric_title(name),
            source=_source(source, found),
            estimate=wording.estimated(one.estimate, one.standard_error or None),
            pooled=wording.measure(one.pooled),
        )
        for source, found in run.measures.fidelity.items()
        for name, one in found.metrics.items()
    ]


def shown_rows(run: RunFolder) -> int:
    """Return the number of rows that every site saw; 0 if no site saw rows of another."""
    found = run.measures.fidelity.get(QUERY_ROWS)
    return found.rows if found is not None else 0


def _source(source: str, found: FidelityMeasures) -> str:
    if source == QUERY_ROWS:
        return f"{wording.plural(found.rows, 'row')} that every site saw"
    return f"the distances of {wording.plural(found.rows, 'row')} that the server recovered"
