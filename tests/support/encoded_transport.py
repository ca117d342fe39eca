"""A transport whose calls and answers go through the wire format, and equality of values bit for bit."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from raydr.federation.codec import decode, encode, encoded_bytes
from raydr.federation.transport import Transport
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.settings import Settings


@dataclass
class EncodedTransport:
    """Encodes and decodes every call and answer of another transport.

    Attributes
    ----------
    inner : Transport
        The transport that carries them.
    seen : callable
        Called with every value and its bytes.
    """

    inner: Transport
    seen: Callable[[Any, bytes], None] = field(default=lambda value, data: None)

    def reset(self) -> None:
        self.inner.reset()

    def ask(self, call: Call) -> list[Answer]:
        return [self._through(answer) for answer in self.inner.ask(self._through(call))]

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        return map(self._through, self.inner.sum(self._through(call)))

    def compute(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        return self.inner.compute(work, tasks)

    def share(self, values: Iterable[Any]) -> Sequence[Any]:
        return self.inner.share(values)

    def machines(self) -> int:
        return self.inner.machines()

    def _through(self, value: Any) -> Any:
        data = encode(value)
        assert encoded_bytes(value) == len(data)
        self.seen(value, data)
        return decode(data)


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same types, and the same bits in every number, array and text."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (
            one.dtype.newbyteorder("<") == other.dtype
            and one.shape == other.shape
            and one.astype(other.dtype).tobytes() == other.tobytes()
        )
    if isinstance(one, np.generic):
        return one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, enum.Enum | type):
        return one is other
    if isinstance(one, Settings):
        return all(same(getattr(one, name), getattr(other, name)) for name in type(one).model_fields)
    if is_dataclass(one):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(one == other)
