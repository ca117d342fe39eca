"""Pads: integers that clients add to their summands, so that the server learns less from a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    return _uniform(shared.stream("pad", number, client, field), shape)


def blind(own: Secret, summed: str, field: str, summand: NDArray[Any]) -> Int64Array:
    """Return integers that are uniform over the ring where a summand is not 0, and 0 elsewhere.

    A sum that is not 0 at a place is then uniform there. It tells neither how many summands are not 0 nor which ones,
    and is 0 by accident with probability 2^-64.

    Parameters
    ----------
    own : Secret
        Secret of the client alone.
    summed : str
        Digest of the request and the label of the sum. The same sum has the same numbers, because the difference of two
        answers under one mask would show where the summand is not 0.
    field : str
        Field of the reply.
    summand : array
        The client's summand.
    """
    return np.where(summand != 0, _uniform(own.stream("blind", summed, field), summand.shape), 0)


def _uniform(stream: np.random.Generator, shape: tuple[int, ...]) -> Int64Array:
    words = stream.bit_generator.random_raw(int(np.prod(shape)))
    return np.asarray(words, np.uint64).view(np.int64).reshape(shape)
