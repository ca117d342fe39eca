"""Requests, replies, and what each of them reveals.

A request goes from the server to every client; a reply comes back. Both are frozen dataclasses of arrays and
scalars, nothing else: what they hold is what travels, and the ledger counts it. A reply type declares its
granularity when it is defined and, where it is to be summed, the range of every field (:meth:`Reply.bounds`).

>>> import numpy as np
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Total(Reply, granularity=Granularity.AGGREGATE, what="the sum of all entries"):
...     total: float
...     @staticmethod
...     def bounds(request):
...         return {"total": 1e3}
>>> @dataclass(frozen=True)
... class TotalRequest(Request[Total], what="a question without content"):
...     pass
>>> @answers(TotalRequest)
... def total(client, request):
...     return Total(float(client.rows.sum()))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np

from raydr.arrays import FloatArray

if TYPE_CHECKING:
    from raydr.federation.client import Client

Bound: TypeAlias = "float | FloatArray"
"""Largest absolute value that one client may send in a field: one number, or one for each entry."""


class Granularity(StrEnum):
    """How finely a reply speaks of the data behind it."""

    PER_RECORD = "per-record"
    PER_CLIENT = "per-client"
    AGGREGATE = "aggregate"


class Reply:
    """Base of everything that leaves a client.

    Parameters
    ----------
    granularity : Granularity
        Whether the reply speaks of single records, of one client, or is meant to be summed over clients.
    what : str
        One sentence for the ledger: what the reply contains, in words that a data owner understands.
    """

    granularity: ClassVar[Granularity]
    what: ClassVar[str]

    def __init_subclass__(cls, *, granularity: Granularity, what: str) -> None:
        super().__init_subclass__()
        cls.granularity = granularity
        cls.what = what

    @staticmethod
    def bounds(request: Any) -> Mapping[str, Bound]:
        """Range of each field of a summable reply, from the request alone, so that all parties know it.

        Returns
        -------
        bounds : mapping of field name to float or array of the field's shape
            Largest absolute value that one client may send. Larger is an error, never a wrap.
        """
        raise TypeError("this reply declares no range, so it cannot be summed: ask for it instead")


R = TypeVar("R", bound=Reply)
Q = TypeVar("Q", bound="Request[Any]")


class Request(Generic[R]):
    """Base of everything that the server sends; ``R`` is the type of its replies.

    Parameters
    ----------
    what : str
        One sentence for the ledger: what the clients are told.
    """

    what: ClassVar[str]
    client_part: ClassVar[Callable[[Client, Any], Reply]]

    def __init_subclass__(cls, *, what: str) -> None:
        super().__init_subclass__()
        cls.what = what


def answers(request: type[Q]) -> Callable[[Callable[[Client, Q], R]], Callable[[Client, Q], R]]:
    """Make a function the client part of a request type: it runs where the client's rows are."""

    def register(part: Callable[[Client, Q], R]) -> Callable[[Client, Q], R]:
        request.client_part = staticmethod(part)
        return part

    return register


def payload_bytes(message: Any) -> int:
    """Bytes of a message's arrays and scalars (8 each), without any envelope."""
    total = 0
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, str):
            total += len(value.encode())
        else:
            total += 8
    return total
