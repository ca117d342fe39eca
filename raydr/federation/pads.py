"""Pads: what clients add to sums that the server adds up and is not to read."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Int64Array
from raydr.privacy.secrets import Secret


def pad(shared: Secret, number: int, client: int, field: str, shape: tuple[int, ...]) -> Int64Array:
    """Integers that are uniform over the ring for all who lack the clients' shared secret.

    Parameters
    ----------
    shared : Secret
        Of all clients.
    number : int
        Of the call.
    client : int
        Who adds them to its summand.
    field : str
        Of the reply.
    shape : tuple of int
        Of the summand.
    """
    words = shared.stream("pad", number, client, field).bit_generator.random_raw(int(np.prod(shape)))
    return np.asarray(words, np.uint64).view(np.int64).reshape(shape)
