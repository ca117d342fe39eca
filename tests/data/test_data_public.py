"""Public rows are not mapped, and mapped rows are not public."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.data import load, set_apart
from raydr.errors import DataError


@pytest.mark.parametrize("mapped", [None, 2, 100, 140])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_row_is_both_mapped_and_public(mapped: int | None, seed: int) -> None:
    table = load(source="digits")
    table = table.take(np.arange(150))
    private, public = set_apart(table, mapped, 10, seed)
    assert (len(private.rows), len(public.rows)) == (140 if mapped is None else mapped, 10)
    known = {row.tobytes() for row in table.rows}
    assert len(known) == 150, "no two digits are alike"
    shown = {row.tobytes() for row in public.rows}
    assert len(shown) == 10
    assert shown <= known
    assert shown.isdisjoint({row.tobytes() for row in private.rows})


def test_too_many_public_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"Set data\.rows to 2 to 140"):
        set_apart(load(source="iris"), 141, 10, 0)
