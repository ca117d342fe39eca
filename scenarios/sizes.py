"""Does the table have the rows that the settings ask for? Answered while nothing has been started yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raydr.errors import ScenarioError

if TYPE_CHECKING:
    from scenarios.schema import MethodSettings


def refuse_too_few_rows(method: MethodSettings, rows: int) -> None:
    """Raise what the method itself would raise over these settings, seconds earlier: before Ray and any client.

    Parameters
    ----------
    method : MethodSettings
        The scenario's method.
    rows : int
        Rows of all clients together.

    Raises
    ------
    ScenarioError
        If there are more landmarks than rows, or the embedder asks for more neighbours than a row has.
    DataError
        If there are too few rows for any map.
    """
    landmarks = getattr(method, "landmarks", None)
    if landmarks is not None and landmarks > rows:
        raise ScenarioError(
            f"method.landmarks is {landmarks}, but the data have only {rows} rows: choose at most {rows} landmarks,"
            " or leave it out."
        )
    method.embedder().neighbors_needed(rows)
