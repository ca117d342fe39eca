"""Noise on a sum in shares. Clients add more shares than the whole noise needs.

Some shares may be lost, and colluding clients may reveal theirs. The records of the other clients are covered by the
noise that remains without these shares, after the largest number of drop-outs that the run allows.
"""

from __future__ import annotations

import math
from fractions import Fraction


def colluders_of(clients: int, colluding: float) -> int:
    """Return how many clients may collude: this fraction, as written in decimal, and at least one.

    >>> colluders_of(30, 0.1), colluders_of(4, 0.2)
    (3, 1)
    """
    return max(1, int(Fraction(repr(colluding)) * clients))


def shares_of_whole(clients: int, colluding: float, lost: int = 0) -> int:
    """Return how many shares make the whole noise if ``clients`` add one each and ``lost`` may drop out.

    >>> shares_of_whole(10, 0.2), shares_of_whole(10, 0.7), shares_of_whole(1, 0.2)
    (8, 3, 1)
    """
    return max(1, clients - lost - colluders_of(clients, colluding))


def summed_deviation(shared: bool, clients: int, colluding: float) -> float:
    """Return the deviation of the noise in a sum without losses, relative to the noise that covers it.

    Parameters
    ----------
    shared : bool
        Whether each client adds a share of the noise, or the whole noise.
    clients, colluding : int, float
        Number of clients in the sum, and the fraction that may collude.

    >>> summed_deviation(False, 9, 0.2), summed_deviation(True, 9, 0.12)
    (3.0, 1.0606601717798212)
    """
    return math.sqrt(clients / shares_of_whole(clients, colluding) if shared else clients)
