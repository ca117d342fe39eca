"""Whether a sparse table stays sparse in a run."""

from __future__ import annotations

from collections.abc import Sequence

from raydr.data import Table
from raydr.memory import size
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import SparseRows
from raydr.statistics.dissimilarity import KEEP_ZEROS


def why_dense(scenario: Scenario, rows: int = 0, features: int = 0) -> str | None:
    """Return why a run needs dense rows, as a clause with what to change; None if a sparse table stays sparse.

    It depends on the scenario and the size of the table alone, so it reveals nothing about rows.
    """
    data, privacy = scenario.data, scenario.privacy
    found = scenario.method.why_dense(rows, features, pooled="central" in scenario.compare)
    if found is not None:
        return found
    if data.scale not in ("none", "maxabs"):
        return f"data.scale {data.scale} moves zeros: set data.scale to maxabs or none"
    if data.metric not in KEEP_ZEROS:
        return f"data.metric {data.metric} changes zeros: set data.metric to one of {', '.join(sorted(KEEP_ZEROS))}"
    if data.filling is not None:
        return f"data.missing {data.filling} fills values in: set data.missing to error or drop"
    if data.harmonize is not None:
        return "data.harmonize changes zeros: leave it out"
    if privacy.isometry_key:
        return "privacy.isometry_key rotates rows: leave it out"
    if privacy.noise is not None and privacy.noise.on == "data":
        return "privacy.noise on data changes zeros: choose another privacy.noise.on"
    return None


def in_form(scenario: Scenario, table: Table) -> tuple[Table, tuple[str, ...]]:
    """Return the table in the form that the run needs, and a notice if a sparse table was made dense.

    Raises
    ------
    DataError
        If it must be dense and the free memory is too small.
    """
    why = why_dense(scenario, *table.rows.shape)
    if why is None or not isinstance(table.rows, SparseRows):
        return table, ()
    notice = (
        f"{table.name} is stored sparse ({size(table.rows.nbytes)}) and was made dense"
        f" ({size(table.rows.dense_bytes)}), because {why}."
    )
    return table.made_dense(why), (notice,)


def notices_of_sparse_files(why: str | None, made_dense: Sequence[int]) -> tuple[str, ...]:
    """Return a notice if sites' sparse files were made dense; ``made_dense`` has the dense bytes of each, or 0."""
    count, total = sum(map(bool, made_dense)), size(sum(made_dense))
    if not count:
        return ()
    return (
        f"{count} of {len(made_dense)} sites' files are stored sparse and were made dense ({total} in all),"
        f" because {why}.",
    )
