"""Noise on a sum in shares: more are added than make the whole, since some may be lost and some are known.

A client knows its own share of the noise, and clients that collude tell theirs. What covers the records of the others
is the noise that is left without these shares, after as many drop-outs as a run allows.
"""

from __future__ import annotations

import math
from fractions import Fraction


def colluders_of(clients: int, colluding: float) -> int:
    """Count the clients that may collude: this part of them by the decimal that was written, and at least one.

    >>> colluders_of(30, 0.1), colluders_of(4, 0.2)
    (3, 1)
    """
    return max(1, int(Fraction(repr(colluding)) * clients))


def shares_of_whole(clients: int, colluding: float, lost: int = 0) -> int:
    """Return how many shares make the whole noise where ``clients`` add one each and ``lost`` may drop out.

    >>> shares_of_whole(10, 0.2), shares_of_whole(10, 0.7), shares_of_whole(1, 0.2)
    (8, 3, 1)
    """
    return max(1, clients - lost - colluders_of(clients, colluding))


def summed_deviation(shared: bool, clients: int, colluding: float) -> float:
    """Return the deviation of the noise in a sum, in units of the noise that covers it, if no client is lost.

    Parameters
    ----------
    shared : bool
        Whether clients add shares, or each the whole noise.
    clients, colluding : int, float
        How many add to the sum, and the part of them that may collude.

    >>> summed_deviation(False, 9, 0.2), summed_deviation(True, 9, 0.12)
    (3.0, 1.0606601717798212)
    """
    return math.sqrt(clients / shares_of_whole(clients, colluding) if shared else clients)
