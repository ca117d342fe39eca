"""Degrees of the neighbour graph and the secret-sharing threshold, computed exactly from the assumptions.

Clients stand on a circle in random order. Neighbours are the nearest clients on either side (a Harary graph, Bell et
al. 2020). Neighbours within the masking degree exchange streams, the costly part. Neighbours within the sharing degree
hold shares. Three conditions must hold for every sum, for any colluding and dropped clients that do not depend on this
order (after Bell et al., definition 3.1 and theorem 3.10):

* No client has as many colluding neighbours as the threshold: hypergeometric, times the number of clients.
* Streams connect the honest survivors. On a circle they do, unless two gaps of half the masking degree separate them.
  The gaps are a uniformly random composition of the missing clients, so inclusion-exclusion counts the bad cases.
* Every client has as many neighbours left as the threshold: otherwise the sum is refused. That does not reduce
  privacy, so a probability of 2^-30 is low enough; the first two together fail with a probability of at most 2^-40.

Masking degree / sharing degree, threshold, by colluding and dropping fraction of the clients (the default first). Up
to 16 clients, all are neighbours of each other, which costs little and is exact.

=======  ===========  ===========  =============
clients  0.2, 0.1     0.1, 0.1     0.33, 0.33
=======  ===========  ===========  =============
3        2/2, 2       2/2, 2       2/2, 2
10       9/9, 8       9/9, 8       9/9, 6
30       10/10, 7     8/8, 5       20/20, 11
100      24/32, 22    18/22, 12    54/68, 35
1,000    34/76, 47    26/52, 28    90/310, 159
=======  ===========  ===========  =============
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import comb

from raydr.errors import ScenarioError
from raydr.privacy.shares import colluders_of

SECURITY_BITS = 40
CORRECTNESS_BITS = 30
COMPLETE = 16
"""Up to this number of clients, all are neighbours of each other."""


@dataclass(kw_only=True, frozen=True)
class Degrees:
    """The graph of a group, and the collusion and drop-out that it tolerates.

    Attributes
    ----------
    clients : int
        Clients in the group.
    colluders, dropouts : int
        Clients that may reveal everything they know to the server, and clients that may drop out.
    masking, sharing : int
        Neighbours that exchange streams with a client, and neighbours that hold its shares. The former are among the
        latter.
    threshold : int
        Shares that reconstruct a secret. Fewer reveal nothing.
    """

    clients: int
    colluders: int
    dropouts: int
    masking: int
    sharing: int
    threshold: int


@lru_cache
def degrees(clients: int, colluding: float = 0.2, dropping: float = 0.1) -> Degrees:
    """Return the smallest degrees for this many clients, and the largest threshold that they allow.

    Parameters
    ----------
    clients : int
        At least 3.
    colluding : float
        Fraction of the clients that may collude with the server, in [0, 1); at least one client always may.
    dropping : float
        Fraction of the clients that may drop out, in [0, 1).

    Raises
    ------
    ScenarioError
        If there are too few clients, or too many of them may collude or drop out.

    Examples
    --------
    >>> degrees(1000)
    Degrees(clients=1000, colluders=200, dropouts=100, masking=34, sharing=76, threshold=47)
    """
    for name, part in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= part < 1:
            raise ScenarioError(
                f"the {name} fraction of the clients is {part:g}; expected at least 0 and below 1."
            )
    if clients < 3:
        raise ScenarioError(
            f"secure aggregation needs at least 3 clients, got {clients}: with two, each client can compute the"
            " other's value from the sum."
        )
    colluders = colluders_of(clients, colluding)
    dropouts = int(Fraction(repr(dropping)) * clients)
    if clients - colluders - dropouts < 2:
        raise ScenarioError(
            f"of {clients} clients, {colluders} may collude and {dropouts} may drop out. Fewer than 2 are left, so"
            " the sum would reveal their values. Lower the colluding or dropping fraction, or use more clients."
        )
    everybody = clients - 1
    secure = 2 ** (SECURITY_BITS + 1)
    masking = next(
        degree
        for degree in _candidates(everybody if clients <= COMPLETE else 2, everybody)
        if parted(clients, colluders + dropouts, degree) * secure <= 1
    )
    # A complete graph always has a threshold: more neighbours are left than may collude.
    for sharing in _candidates(masking, everybody):
        ways, known = comb(everybody, sharing), _ways(everybody, colluders, sharing)
        threshold = _largest_threshold(clients, dropouts, sharing)
        if threshold and clients * known[threshold] * secure <= ways:
            break
    return Degrees(
        clients=clients,
        colluders=colluders,
        dropouts=dropouts,
        masking=masking,
        sharing=sharing,
        threshold=threshold,
    )


def _largest_threshold(clients: int, dropouts: int, sharing: int) -> int:
    """Return the largest threshold that drop-outs leave to all clients; 0 if there is none."""
    ways, lost = comb(clients - 1, sharing), _ways(clients - 1, dropouts, sharing)
    too_many = next(count for count, bad in enumerate(lost) if clients * bad * 2**CORRECTNESS_BITS <= ways)
    return sharing + 1 - too_many


def parted(clients: int, gone: int, degree: int) -> Fraction:
    """Return the probability that ``gone`` random clients split the remaining circle."""
    left, run = clients - gone, degree // 2
    if degree >= clients - 1:
        return Fraction(0)
    # Of `left` gaps that add up to `gone`, at least two are at least `run` long.
    bad = sum(
        (-1) ** gaps * (gaps - 1) * comb(left, gaps) * comb(gone - gaps * run + left - 1, left - 1)
        for gaps in range(2, min(left, gone // run) + 1)
    )
    return Fraction(bad, comb(gone + left - 1, left - 1))


def _ways(population: int, marked: int, drawn: int) -> list[int]:
    """Count the draws without replacement with at least 0, 1, ..., ``drawn + 1`` marked members."""
    exactly = (comb(marked, hits) * comb(population - marked, drawn - hits) for hits in range(drawn, -1, -1))
    return [*accumulate(exactly, initial=0)][::-1]


def _candidates(least: int, everybody: int) -> list[int]:
    """Return the degrees to try: ``least`` and up in steps of two (as many on either side), then everybody."""
    return [*range(least, everybody, 2), everybody]
