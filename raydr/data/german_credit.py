"""German credit's 20 attributes, from the one-hot columns of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

CATEGORIES = (4, 1, 5, 10, 1, 5, 5, 1, 4, 3, 1, 4, 1, 3, 3, 1, 4, 1, 2, 2)
"""Categories of each of the 20 attributes that occur in the data, in UCI's order. 1: a number."""


def with_attributes(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays with 20 columns as ``X``: numbers, and places of categories among their codes, from 0.

    ``X_onehot`` (1000, 61) has a column for each number and each category, in the order of UCI's documentation.
    """
    columns = np.split(np.asarray(arrays["X_onehot"], dtype=np.float32), np.cumsum(CATEGORIES)[:-1], axis=1)
    table = [each[:, 0] if each.shape[1] == 1 else each.argmax(axis=1) for each in columns]
    left = {name: values for name, values in arrays.items() if name not in ("X_onehot", "onehot_names")}
    return left | {"X": np.stack(table, axis=1).astype(np.float32)}
