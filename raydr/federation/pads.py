"""Pads: integers that clients add to sums that the server must not read."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Int64Array
from raydr.privacy.secrets import Secret


def pad(shared: Secret, number: int, client: int, field: str, shape: tuple[int, ...]) -> Int64Array:
    """Return integers that are uniform over the ring without the clients' shared secret.

    Parameters
    ----------
    shared : Secret
        Secret of all clients.
    number : int
        Number of the call.
    client : int
        Client that adds the pad to its summand.
    field : str
        Field of the reply.
    shape : tuple of int
        Shape of the summand.
    """
    words = shared.stream("pad", number, client, field).bit_generator.random_raw(int(np.prod(shape)))
    return np.asarray(words, np.uint64).view(np.int64).reshape(shape)
