"""The server's account of a deployed run, compared with the accounts that the sites have signed.

The server's ledger adds up the messages of all sites. So the ledgers of all sites are needed, and their sums are
compared. A message that the server denies, adds or makes smaller leaves a difference, unless the site is silent too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydr.deployment.signed_ledger import SignedLedger, read_signed_ledger
from raydr.errors import DataError
from raydr.privacy.ledger import Entry, Ledger
from raydr.runfolder.reading import read_run, read_unplaced

_SAME = 1e-6
"""Relative difference up to which two values of epsilon are the same: both are computed from the same noise."""


@dataclass(frozen=True)
class Amount:
    """Messages of one exchange: their number, their bytes, and their epsilon; None without a guarantee."""

    count: int = 0
    bytes: int = 0
    epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """All messages of one kind, in one direction and under one protection.

    Attributes
    ----------
    kind, direction : str
        As in the ledger.
    server : Amount
        The server's account of all sites together.
    sites : mapping of name to Amount
        The account of each site.
    differences : tuple of str
        What differs, one clause each; empty if the accounts agree.
    """

    kind: str
    direction: str
    server: Amount
    sites: Mapping[str, Amount]
    differences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The comparison of a run.

    Attributes
    ----------
    problems : tuple of str
        Why ledgers cannot be used, one sentence each. Then nothing is compared.
    exchanges : tuple of Exchange
        Every exchange that any side knows.
    """

    problems: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every ledger is signed, and all accounts agree."""
        return not self.problems and not any(each.differences for each in self.exchanges)


def verify(folder: Path, ledgers: Sequence[Path], nodes: Mapping[str, bytes]) -> Verification:
    """Compare the ledger of a deployed run with the signed ledgers of all its sites.

    Parameters
    ----------
    folder : Path
        The server's run folder.
    ledgers : sequence of Path
        The signed ledger of each site.
    nodes : mapping of name to bytes
        Public keys of the sites' nodes, in PEM.

    Raises
    ------
    OutputError
        If the folder is not a run folder, or was edited.
    DataError
        If the run is not deployed.
    """
    account = read_unplaced(folder) or read_run(folder)
    run, sites = account.environment.run, tuple(account.scenario.get("clients", {}).get("deployed") or ())
    if not sites:
        raise DataError(f"{folder} is a simulation, whose clients have no ledgers of their own.")
    problems: list[str] = []
    found: dict[str, SignedLedger] = {}
    for path in ledgers:
        try:
            ledger = read_signed_ledger(path, nodes)
        except DataError as error:
            problems.append(str(error))
            continue
        if ledger.run != run:
            problems.append(f"{path} is the ledger of another run, {ledger.run}, and not of {run}.")
        elif ledger.sites != sites:
            problems.append(
                f"{path} is of a run of the sites {', '.join(ledger.sites)}, and not {', '.join(sites)}."
            )
        elif ledger.site in found:
            problems.append(f"{path} is a second ledger of {ledger.site}.")
        else:
            found[ledger.site] = ledger
    missing = [site for site in sites if site not in found]
    if missing:
        problems.append(f"There is no valid ledger of {', '.join(missing)}, and all sites are needed.")
    if problems:
        return Verification(problems=tuple(problems))
    return Verification(
        exchanges=tuple(_compared(account.ledger, {site: each.ledger for site, each in found.items()}))
    )


def _compared(server: Sequence[Entry], sites: Mapping[str, Ledger]) -> Iterator[Exchange]:
    told = _amounts(server)
    delta = next((entry.delta for entry in server if entry.delta is not None), None)
    own = {
        site: _amounts((ledger if delta is None else ledger.settled(delta)).entries.values())
        for site, ledger in sites.items()
    }
    names: dict[tuple[Any, ...], str] = {}
    for account in (told, *own.values()):
        names |= {key: kind for key, (kind, _) in account.items() if key not in names}
    for key, kind in names.items():
        at_server = told.get(key, ("", Amount()))[1]
        at_sites = {site: account.get(key, ("", Amount()))[1] for site, account in own.items()}
        yield Exchange(
            kind=kind,
            direction=key[0],
            server=at_server,
            sites=at_sites,
            differences=tuple(_differences(at_server, at_sites)),
        )


def _amounts(entries: Iterable[Entry]) -> dict[tuple[Any, ...], tuple[str, Amount]]:
    """Return the kind and amount of each exchange.

    A request that the server cuts for each client has another name at the site, and the same content in words.
    """
    found: dict[tuple[Any, ...], tuple[str, Amount]] = {}
    for entry in entries:
        key = entry.direction, entry.what if entry.direction == "down" else entry.kind, entry.protection
        kind, before = found.get(key, (entry.kind, Amount()))
        epsilon = before.epsilon if entry.epsilon is None else entry.epsilon
        found[key] = kind, Amount(before.count + entry.count, before.bytes + entry.bytes, epsilon)
    return found


def _differences(server: Amount, sites: Mapping[str, Amount]) -> Iterator[str]:
    """Yield what differs: counts and bytes add up over sites; epsilon is that of the least protected site."""
    for name in ("count", "bytes"):
        told, own = getattr(server, name), {site: getattr(each, name) for site, each in sites.items()}
        if told != sum(own.values()):
            parts = ", ".join(f"{site} {value:,}" for site, value in own.items())
            unit = "messages" if name == "count" else "bytes"
            yield f"{told:,} {unit} by the server, {sum(own.values()):,} by the sites ({parts})"
    known = {site: each.epsilon for site, each in sites.items() if each.epsilon is not None}
    largest = max(known.values(), default=None)
    if server.epsilon is None or largest is None:
        same = server.epsilon is largest is None
    else:
        same = math.isclose(server.epsilon, largest, rel_tol=_SAME)
    if not same:
        parts = ", ".join(f"{site} {_epsilon(each.epsilon)}" for site, each in sites.items())
        yield f"epsilon {_epsilon(server.epsilon)} by the server, {_epsilon(largest)} by the sites ({parts})"


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
