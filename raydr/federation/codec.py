"""The wire format of messages: a closed set of values as bytes, without pickle and without imports.

A message holds arrays and numbers of numpy, None, bool, int, float, text, bytes, tuples, lists, mappings, and the types
of :mod:`raydr.wire_types`: requests, replies, settings, and registered dataclasses and enums. Equal values come out,
with the same bits, types and memory order of arrays. Identity and cached properties do not travel.

========  ======================================================================================================
part      content
========  ======================================================================================================
header    ``RY``, the version of the format, and the memory that the values take
value     one byte for its kind, then its content; lengths and numbers of items as LEB128
array     number type, memory order, shape, and the numbers: little-endian, in that order
type      its name and the checksum of its fields' names; when it occurs again, only its place in the message
========  ======================================================================================================

:func:`decode` trusts nothing. It counts every value against the declared memory before it makes the value, and refuses
more than its limit. An object is made by the constructor of its class, and settings are validated.

>>> decode(encode({"rows": 3, "means": (0.5, None)}))
{'rows': 3, 'means': (0.5, None)}
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.federation.wire_format import (
    DEPTH,
    DIMENSIONS,
    DTYPES,
    FORTRAN,
    ITEM,
    KEYS,
    MAGIC,
    OBJECT,
    VERSION,
    CodecError,
    Encoder,
    checksum,
    field_names,
    is_key,
)
from raydr.settings import Settings
from raydr.wire_types import wire_type

__all__ = ["LIMIT", "CodecError", "decode", "encode", "encoded_bytes"]

LIMIT = 1 << 31
"""Most memory of one message in bytes, unless the caller says otherwise."""


def encode(value: Any) -> bytes:
    """Return a value as a message.

    Parameters
    ----------
    value : object
        A request, reply or call, or any value that these may hold.

    Returns
    -------
    data : bytes
        The message.

    Raises
    ------
    CodecError
        If the value holds anything else, or is nested too deeply. The error names the type.

    Examples
    --------
    >>> len(encode(np.zeros(100)))
    809
    """
    pieces = Encoder().message(value)
    return b"".join(
        piece if isinstance(piece, bytes) else piece.ravel(order="A").view(np.uint8).data for piece in pieces
    )


def encoded_bytes(value: Any) -> int:
    """Return the length of ``encode(value)`` without copying its arrays.

    >>> encoded_bytes((np.zeros(9), "four")) == len(encode((np.zeros(9), "four")))
    True
    """
    pieces = Encoder().message(value)
    return sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)


def decode(data: bytes | memoryview, *, limit: int = LIMIT) -> Any:
    """Return the value of a message.

    Parameters
    ----------
    data : bytes or memoryview
        The message.
    limit : int
        Most memory, in bytes, that its values may take.

    Returns
    -------
    value : object
        The value. Its arrays own their memory.

    Raises
    ------
    CodecError
        If the bytes are no message of this version, name an unknown type, do not fit a class, or declare more memory
        than ``limit`` or less than they need. The error says at which byte.
    """
    return _Decoder(memoryview(data).cast("B"), limit).message()


class _Decoder:
    """Reads one message from its start to its end."""

    def __init__(self, data: memoryview, limit: int) -> None:
        self.data, self.limit = data, limit
        self.place = 0
        self.memory = 0
        self.types: list[type] = []

    def message(self) -> Any:
        if bytes(self.data[:2]) != MAGIC:
            raise CodecError(
                f"not a message of raydr: it begins with {bytes(self.data[:2])!r}, not {MAGIC!r}"
            )
        version = self.data[2] if len(self.data) > 2 else None
        if version != VERSION:
            raise CodecError(
                f"the message has version {version} of the format, but this raydr reads version {VERSION}: install"
                " the same version of raydr on both sides"
            )
        self.place = 3
        self.memory = self.varint()
        if self.memory > self.limit:
            raise self.error(
                f"the message declares {self.memory:,} bytes of memory, more than {self.limit:,}"
            )
        value = self.value(0)
        if self.place != len(self.data):
            raise self.error(f"the message ends here, but {len(self.data) - self.place} more bytes follow")
        if self.memory:
            raise self.error(f"the message declares {self.memory:,} bytes of memory more than it holds")
        return value

    def error(self, text: str) -> CodecError:
        return CodecError(f"{text} (at byte {self.place} of {len(self.data)})")

    def charge(self, memory: int) -> None:
        """Count memory that is about to be allocated."""
        if memory > self.memory:
            raise self.error("the message holds more than the memory that it declares")
        self.memory -= memory

    def take(self, length: int) -> memoryview:
        """Return the next bytes."""
        end = self.place + length
        if end > len(self.data):
            raise self.error(f"{length:,} bytes are due, but only {len(self.data) - self.place} follow")
        found = self.data[self.place : end]
        self.place = end
        return found

    def varint(self) -> int:
        number = shift = 0
        while shift < 63:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte and shift:
                    raise self.error("a number has needless zeros")
                return number
            shift += 7
        raise self.error("a number has more than 63 bits")

    def count(self) -> int:
        """Return a number of items, each of which takes a byte at least."""
        count = self.varint()
        if count > len(self.data) - self.place:
            raise self.error(f"{count:,} items are due, but only {len(self.data) - self.place} bytes follow")
        return count

    def value(self, depth: int) -> Any:
        if depth > DEPTH:
            raise self.error(f"the message has more than {DEPTH} levels of values within values")
        self.charge(ITEM)
        code = self.take(1)[0]
        read = _READERS.get(code)
        if read is None:
            raise self.error(f"unknown kind of value {bytes((code,))!r}")
        return read(self, depth)

    def array(self, depth: int) -> NDArray[Any]:
        dtype, fortran = self.dtype()
        dimensions = self.varint()
        if dimensions > DIMENSIONS:
            raise self.error(f"an array has {dimensions} dimensions, more than {DIMENSIONS}")
        shape = tuple(self.varint() for _ in range(dimensions))
        if math.prod(length or 1 for length in shape) * dtype.itemsize >= 1 << 62:
            raise self.error(f"an array has the shape {shape}, which no memory holds")
        length = math.prod(shape) * dtype.itemsize
        content = self.take(length)
        self.charge(length)
        array: NDArray[Any] = np.empty(shape, dtype, order="F" if fortran else "C")
        flat = array.reshape(-1, order="A")
        if length:
            flat.view(np.uint8)[:] = np.frombuffer(content, np.uint8)
        if fortran and (not array.flags.f_contiguous or array.flags.c_contiguous):
            raise self.error("an array of one order claims the other")
        if dtype.kind == "b" and length and flat.view(np.uint8).max() > 1:
            raise self.error("an array of truth values holds other numbers than 0 and 1")
        return array

    def dtype(self) -> tuple[np.dtype[Any], bool]:
        code = self.take(1)[0]
        if code & ~FORTRAN >= len(DTYPES):
            raise self.error(f"unknown type of numbers {code}")
        return DTYPES[code & ~FORTRAN], bool(code & FORTRAN)

    def scalar(self, depth: int) -> Any:
        dtype, fortran = self.dtype()
        content = self.take(dtype.itemsize)
        if fortran or (dtype.kind == "b" and content[0] > 1):
            raise self.error("a number of numpy has a value that its type has not")
        return np.frombuffer(content, dtype)[0]

    def whole(self, depth: int) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def large(self, depth: int) -> int:
        length = self.varint()
        content = self.take(length)
        self.charge(2 * length)
        number = int.from_bytes(content, "little", signed=True)
        if -(1 << 63) <= number < 1 << 63 or number.bit_length() // 8 + 1 != length:
            raise self.error("a whole number takes more bytes than it needs")
        return number

    def real(self, depth: int) -> float:
        found: float = struct.unpack("<d", self.take(8))[0]
        return found

    def text(self, depth: int = 0) -> str:
        content = self.take(self.varint())
        self.charge(4 * len(content))
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError:
            raise self.error("a text is not UTF-8") from None

    def binary(self, depth: int) -> bytes:
        content = self.take(self.varint())
        self.charge(len(content))
        return bytes(content)

    def items(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self.count())]

    def row(self, depth: int) -> tuple[Any, ...]:
        return tuple(self.items(depth))

    def mapping(self, depth: int) -> dict[Any, Any]:
        count = self.count()
        self.charge(ITEM * count)
        found = {}
        for done in range(count):
            key = self.value(depth + 1)
            if not is_key(key):
                raise self.error(f"a mapping has a key that is a {type(key).__name__}: {KEYS}")
            found[key] = self.value(depth + 1)
            if len(found) <= done:
                raise self.error(f"a mapping has the key {str(key)[:40]!r} twice")
        return found

    def kind(self, depth: int = 0) -> type:
        place = self.varint()
        if place > len(self.types):
            raise self.error(f"type number {place} is due, but the message names only {len(self.types)}")
        if place:
            return self.types[place - 1]
        name = self.text_of_type()
        kind = wire_type(name)
        if kind is None:
            raise self.error(f"unknown type {name!r}: it is not one of the types that messages may hold")
        if self.take(4) != checksum(kind):
            raise self.error(
                f"{name} has other fields here than where the message was written: install the same version of"
                " raydr on both sides"
            )
        if kind in self.types:
            raise self.error(f"the type {name} is introduced twice")
        self.types.append(kind)
        return kind

    def text_of_type(self) -> str:
        length = self.varint()
        if length > 500:
            raise self.error(f"the name of a type has {length:,} bytes")
        return str(self.take(length), "utf-8", "replace")

    def member(self, depth: int) -> enum.Enum:
        kind, name = self.kind(), self.text()
        if not issubclass(kind, enum.Enum) or name not in kind.__members__:
            raise self.error(f"{kind.__name__} has no member {name!r}")
        return kind[name]

    def instance(self, depth: int) -> Any:
        self.charge(OBJECT)
        kind: Any = self.kind()
        if issubclass(kind, enum.Enum):
            raise self.error(f"{kind.__name__} is an enum, and has no fields")
        values = {name: self.value(depth + 1) for name in field_names(kind)}
        try:
            return kind.model_validate(values) if issubclass(kind, Settings) else kind(**values)
        except Exception as error:  # whatever a constructor raises about values that do not fit
            raise self.error(f"{kind.__name__} refuses its fields: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


_READERS: dict[int, Callable[[_Decoder, int], Any]] = {
    ord("a"): _Decoder.array,
    ord("n"): _Decoder.scalar,
    ord("N"): lambda decoder, depth: None,
    ord("0"): lambda decoder, depth: False,
    ord("1"): lambda decoder, depth: True,
    ord("i"): _Decoder.whole,
    ord("I"): _Decoder.large,
    ord("f"): _Decoder.real,
    ord("s"): _Decoder.text,
    ord("b"): _Decoder.binary,
    ord("l"): _Decoder.items,
    ord("t"): _Decoder.row,
    ord("m"): _Decoder.mapping,
    ord("E"): _Decoder.member,
    ord("T"): _Decoder.kind,
    ord("O"): _Decoder.instance,
}
