"""How many neighbours mask and share with a client, and how many shares make a secret: exact, from what is assumed.

Clients stand on a circle, in random order; neighbours are the nearest on either side (Bell et al. 2020: a Harary
graph). Those within the masking degree exchange streams, the costly part; those within the sharing degree also hold
shares. What must hold for every sum, whoever colludes or drops out as long as they are not chosen by the order (after
Bell et al., definition 3.1 and theorem 3.10):

* No client has as many colluding neighbours as the threshold: hypergeometric, times the number of clients.
* Streams connect the honest survivors. On a circle they do unless two gaps of half the masking degree part them. Gaps
  are a uniformly random composition of all who are gone, so inclusion and exclusion count the bad ones.
* Every client has as many neighbours left as the threshold: else the sum is refused. That is no loss of privacy, so
  2^-30 is rare enough; the first two together fail with a probability of at most 2^-40.

Masking degree / sharing degree, threshold, for a colluding and a dropping part of the clients (the default first). Up
to 16 clients all are neighbours, which costs little and leaves nothing to chance.

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
"""Up to so many clients all are neighbours."""


@dataclass(kw_only=True, frozen=True)
class Degrees:
    """The graph of a group, and what it withstands.

    Attributes
    ----------
    clients : int
        In the group.
    colluders, dropouts : int
        How many may tell the server all they know, and how many may leave before the end.
    masking, sharing : int
        Neighbours that a client exchanges streams with, and that hold its shares; the former are among the latter.
    threshold : int
        Shares that make a secret. Fewer tell nothing.
    """

    clients: int
    colluders: int
    dropouts: int
    masking: int
    sharing: int
    threshold: int


@lru_cache
def degrees(clients: int, colluding: float = 0.2, dropping: float = 0.1) -> Degrees:
    """Smallest degrees for so many clients, and the largest threshold that they allow.

    Parameters
    ----------
    clients : int
        At least 3.
    colluding : float
        Part of the clients that may collude with the server, in [0, 1); at least one client always may.
    dropping : float
        Part of the clients that may drop out, in [0, 1).

    Raises
    ------
    ScenarioError
        If so few clients, or so many of them colluding or dropping out, leave nothing to protect.

    Examples
    --------
    >>> degrees(1000)
    Degrees(clients=1000, colluders=200, dropouts=100, masking=34, sharing=76, threshold=47)
    """
    for name, part in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= part < 1:
            raise ScenarioError(
                f"the {name} part of the clients is {part:g}, and must be at least 0 and below 1."
            )
    if clients < 3:
        raise ScenarioError(
            f"secure aggregation needs at least 3 clients, and there are {clients}: of two, each learns the other's"
            " value from the sum and its own."
        )
    colluders = colluders_of(clients, colluding)
    dropouts = int(Fraction(repr(dropping)) * clients)
    if clients - colluders - dropouts < 2:
        raise ScenarioError(
            f"of {clients} clients {colluders} may collude and {dropouts} drop out: fewer than 2 are left, and the sum"
            " tells their values. Lower the colluding or dropping part, or have more clients."
        )
    everybody = clients - 1
    secure = 2 ** (SECURITY_BITS + 1)
    masking = next(
        degree
        for degree in _candidates(everybody if clients <= COMPLETE else 2, everybody)
        if parted(clients, colluders + dropouts, degree) * secure <= 1
    )
    # With everybody there is one: more neighbours are left than may collude.
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
    """What drop-outs leave to everybody: the largest withstands more colluders than asked for; 0 if it is nothing."""
    ways, lost = comb(clients - 1, sharing), _ways(clients - 1, dropouts, sharing)
    too_many = next(count for count, bad in enumerate(lost) if clients * bad * 2**CORRECTNESS_BITS <= ways)
    return sharing + 1 - too_many


def parted(clients: int, gone: int, degree: int) -> Fraction:
    """Probability that the others fall apart when so many clients of a circle, chosen at random, are gone."""
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
    """In how many ways at least 0, 1, ..., ``drawn + 1`` of so many drawn without replacement are marked."""
    exactly = (comb(marked, hits) * comb(population - marked, drawn - hits) for hits in range(drawn, -1, -1))
    return [*accumulate(exactly, initial=0)][::-1]


def _candidates(least: int, everybody: int) -> list[int]:
    """Degrees to try, from an even one on or everybody: as many neighbours on either side, or everybody."""
    return [*range(least, everybody, 2), everybody]
