"""Names of the random streams of a client's noise.

**Two releases share a draw only if they are bit-identical.** A stream is named by a digest of everything that the
release depends on. This is what is covered and in which round, the mechanism with its settings and scale, the clients
in the same sum, and the values themselves. Deterministic signatures choose their nonces in this way (RFC 6979). So two
answers of one client that share a draw are one answer. No difference or other combination of them removes the noise
from a value.

A sum needs more if each client adds a share of the noise. The same summand in the sums of two sets of clients would
leave, by subtraction, the values of some clients under only their own shares. So the name also includes which clients
are asked and, if some may be lost, which start of the run asks. A round that is repeated after a restart is drawn
again, and the accountant charges it again (:mod:`raydr.federation.accounts`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from raydr.privacy.mechanism import Mechanism, Quantity
from raydr.settings import Settings


def noise_name(
    mechanism: Mechanism,
    quantities: Mapping[str, Quantity],
    *,
    kind: str,
    round: int = 0,
    among: str = "",
) -> tuple[str, str]:
    """Return the stream's names, for a client's secret, of the noise of one release.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism that adds the noise.
    quantities : mapping of field name to Quantity
        Everything that the noise covers, without noise.
    kind : str
        Kind of the release.
    round : int
        Round of the call.
    among : str
        See :class:`raydr.federation.wire.Sharing`; empty if the noise covers the client's own reply.
    """
    return "noise", digest(kind, round, mechanism, quantities, among)


def digest(*content: Any) -> str:
    """Return a digest of arrays, numbers, text and settings, and of tuples, mappings and dataclasses of them.

    Content that differs in a bit, type or shape has a different digest.

    Examples
    --------
    >>> digest(1, "a", np.zeros(2)) == digest(1, "a", np.zeros(2))
    True
    >>> len({digest(1), digest(1.0), digest("1"), digest((1,)), digest(np.ones(1)), digest(1, None)})
    6

    Raises
    ------
    TypeError
        If the content holds anything else.
    """
    hasher = hashlib.blake2b(digest_size=32)
    for part in content:
        for piece in _pieces(part):
            hasher.update(piece)
    return hasher.hexdigest()


def _pieces(content: Any) -> Iterator[Any]:
    """Yield the bytes of content, each part after its type and length, so that parts stay distinct."""
    match content:
        case np.ndarray():
            yield f"array {content.dtype.str} {content.shape}:".encode()
            yield np.ascontiguousarray(content).data
        case bytes():
            yield f"bytes {len(content)}:".encode() + content
        case str():
            yield from _pieces_of("str", len(content.encode()))
            yield content.encode()
        case None | bool() | int() | float() | np.generic():
            yield f"{type(content).__name__} {content!r}:".encode()
        case tuple() | list():
            yield from _pieces_of("list", len(content), *content)
        case Mapping():
            yield from _pieces_of("mapping", len(content), *content.keys(), *content.values())
        case Settings():
            yield from _pieces_of(type(content).__name__, 0, content.model_dump())
        case _ if is_dataclass(content) and not isinstance(content, type):
            named = {field.name: getattr(content, field.name) for field in fields(content)}
            yield from _pieces_of(type(content).__name__, 0, named)
        case _:
            raise TypeError(f"cannot compute a digest of a {type(content).__name__}")


def _pieces_of(kind: str, length: int, *content: Any) -> Iterator[Any]:
    yield f"{kind} {length}:".encode()
    for part in content:
        yield from _pieces(part)
