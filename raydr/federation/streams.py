"""Random streams named by ``(seed, client, round, purpose)``.

Two streams with different names are independent. The same name gives the same numbers in every process and in any
order of opening. numpy's global state is not used.
"""

from __future__ import annotations

import zlib

import numpy as np

_SERVER, _CLIENT = 0, 1


def client_stream(seed: int, client: int, round: int, purpose: str) -> np.random.Generator:
    """Return the stream of one client in one round."""
    return _stream(seed, _CLIENT, client, round, purpose)


def server_stream(seed: int, round: int, purpose: str) -> np.random.Generator:
    """Return the stream of the server in one round."""
    return _stream(seed, _SERVER, 0, round, purpose)


def _stream(seed: int, party: int, client: int, round: int, purpose: str) -> np.random.Generator:
    # CRC-32 is the same in every process; Python's own hash() is salted.
    entropy = (seed, party, client, round, zlib.crc32(purpose.encode()))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
