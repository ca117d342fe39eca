"""The random numbers of a client's noise, and what names them.

**Two releases share a draw only if they are equal to the bit.** A stream is named by a digest of all that the release
follows from: what is covered and in which round, the mechanism with its settings, how it is scaled, who adds to the
same sum, and the values themselves, as deterministic signatures name their nonces (RFC 6979). So two answers of one
client that share a draw are one answer: no difference of them, nor any other combination, takes the noise off a value.

A sum asks for more, where each client adds a share of the noise. The same summand in the sums of two sets of clients
leaves, by subtraction, the values of those who are in one of them under their shares alone. So the name also says who
is asked, and, where some of them may be lost, which start of the run asks: a round that is repeated after a restart is
drawn again, and the accountant charges it again (:mod:`raydr.federation.accounts`).
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
    """Return the names of the stream, among those of a client's secret, for the noise of one release.

    Parameters
    ----------
    mechanism : Mechanism
        What adds the noise.
    quantities : mapping of field name to Quantity
        Everything that the noise covers, as it is without noise.
    kind : str
        What is released.
    round : int
        Of the call.
    among : str
        See :class:`raydr.federation.wire.Sharing`; empty where the noise covers the client's own answer.
    """
    return "noise", digest(kind, round, mechanism, quantities, among)


def digest(*content: Any) -> str:
    """Return a digest of arrays, numbers, text and settings, and of tuples, mappings and dataclasses of them.

    Content that differs in a bit, a type or a shape has another digest.

    Examples
    --------
    >>> digest(1, "a", np.zeros(2)) == digest(1, "a", np.zeros(2))
    True
    >>> len({digest(1), digest(1.0), digest("1"), digest((1,)), digest(np.ones(1)), digest(1, None)})
    6

    Raises
    ------
    TypeError
        If it holds anything else.
    """
    hasher = hashlib.blake2b(digest_size=32)
    for part in content:
        for piece in _pieces(part):
            hasher.update(piece)
    return hasher.hexdigest()


def _pieces(content: Any) -> Iterator[Any]:
    """Bytes of content, each thing after its type and its length, so that no two texts run together."""
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
            raise TypeError(f"a {type(content).__name__} has no digest")


def _pieces_of(kind: str, length: int, *content: Any) -> Iterator[Any]:
    yield f"{kind} {length}:".encode()
    for part in content:
        yield from _pieces(part)
