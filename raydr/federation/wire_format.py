"""The wire format of messages as it is written: see :mod:`raydr.federation.codec`."""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raydr.errors import RunError
from raydr.settings import Settings
from raydr.wire_types import wire_name

VERSION = 1
"""Version of the format. A message of another version is refused."""

DEPTH = 64
"""Most levels of values within values."""

DIMENSIONS = 32
"""Most dimensions of an array."""

ITEM, OBJECT = 128, 1024
"""Bytes of memory that a value takes besides its content: any value, and an object with its fields."""

MAGIC = b"RY"
DTYPES = tuple(
    np.dtype(code)
    for code in (
        "?",
        "i1",
        "<i2",
        "<i4",
        "<i8",
        "u1",
        "<u2",
        "<u4",
        "<u8",
        "<f2",
        "<f4",
        "<f8",
        "<c8",
        "<c16",
    )
)
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
FORTRAN = 0x80
"""Flag of a number type: the memory order of the array is that of Fortran."""

Piece: TypeAlias = "bytes | NDArray[Any]"


class CodecError(RunError):
    """A value that may not travel, or bytes that are no message."""


def varint(number: int) -> bytes:
    """Return a whole number from 0 as LEB128: 7 bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or settings that its constructor takes."""
    if issubclass(kind, Settings):
        return tuple(kind.model_fields)
    return tuple(field.name for field in fields(kind) if field.init) if is_dataclass(kind) else ()


@cache
def checksum(kind: Any) -> bytes:
    """Return 4 bytes that differ between versions of a class with other fields or members."""
    names = [member.name for member in kind] if issubclass(kind, enum.Enum) else field_names(kind)
    return zlib.crc32(",".join(names).encode()).to_bytes(4, "little")


@cache
def introduction(kind: Any) -> bytes:
    """Return how a message introduces a type: 0, its name, and the checksum."""
    name = wire_name(kind)
    if name is None:
        raise CodecError(
            f"a message contains {kind.__module__}.{kind.__qualname__}; expected arrays, numbers, text, tuples,"
            " lists, mappings, requests, replies, mechanisms, settings of methods, or a type registered with"
            " raydr.wire_types.travels"
        )
    text = name.encode()
    return b"\0" + varint(len(text)) + text + checksum(kind)


class Encoder:
    """The pieces of one message, and the memory that its values will take."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.memory = 0
        self.types: dict[type, bytes] = {}

    def message(self, value: Any) -> list[Piece]:
        """Return the bytes of the message in pieces, of which arrays are not copied."""
        self._value(value, 0)
        return [MAGIC + bytes((VERSION,)) + varint(self.memory), *self.pieces]

    def _value(self, value: Any, depth: int) -> None:
        if depth > DEPTH:
            raise CodecError(f"a message has more than {DEPTH} levels of values within values")
        self.memory += ITEM
        kind: Any = type(value)
        write = _WRITERS.get(kind)
        if write is not None:
            write(self, value, depth)
        elif isinstance(value, np.generic):
            self.pieces.append(
                b"n" + self._dtype(value.dtype) + np.asarray(value, little(value.dtype)).tobytes()
            )
        elif isinstance(value, enum.Enum):
            self.pieces.append(b"E" + self._kind(kind))
            self._text(value.name)
        elif isinstance(value, type):
            self.pieces.append(b"T" + self._kind(value))
        elif wire_name(kind) is not None:
            self.memory += OBJECT
            self.pieces.append(b"O" + self._kind(kind))
            for name in field_names(kind):
                self._value(getattr(value, name), depth + 1)
        elif isinstance(value, Mapping):
            self._mapping(value, depth)
        else:
            introduction(kind)  # raises the error that names the type

    def _array(self, array: NDArray[Any], depth: int) -> None:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        code = self._dtype(array.dtype, FORTRAN if fortran else 0)
        self.memory += array.nbytes
        self.pieces.append(b"a" + code + b"".join(map(varint, (array.ndim, *array.shape))))
        self.pieces.append(array.astype(little(array.dtype), copy=False))

    def _dtype(self, dtype: np.dtype[Any], flags: int = 0) -> bytes:
        code = DTYPE_CODES.get(little(dtype))
        if code is None:
            raise CodecError(
                f"a message contains numbers of type {dtype}; expected bool, int, float or complex"
            )
        return bytes((code | flags,))

    def _none(self, value: None, depth: int) -> None:
        self.pieces.append(b"N")

    def _flag(self, value: bool, depth: int) -> None:
        self.pieces.append(b"1" if value else b"0")

    def _whole(self, value: int, depth: int) -> None:
        if -(1 << 63) <= value < 1 << 63:
            self.pieces.append(b"i" + value.to_bytes(8, "little", signed=True))
        else:
            length = value.bit_length() // 8 + 1
            self.memory += 2 * length
            self.pieces.append(b"I" + varint(length) + value.to_bytes(length, "little", signed=True))

    def _real(self, value: float, depth: int) -> None:
        self.pieces.append(b"f" + struct.pack("<d", value))

    def _string(self, value: str, depth: int) -> None:
        self.pieces.append(b"s")
        self._text(value)

    def _text(self, value: str) -> None:
        try:
            content = value.encode()
        except UnicodeEncodeError:
            raise CodecError(f"a message contains text that UTF-8 cannot write: {value[:40]!a}") from None
        self.memory += 4 * len(content)
        self.pieces.append(varint(len(content)) + content)

    def _binary(self, value: bytes, depth: int) -> None:
        self.memory += len(value)
        self.pieces.append(b"b" + varint(len(value)) + value)

    def _sequence(self, value: tuple[Any, ...] | list[Any], depth: int) -> None:
        self.pieces.append((b"t" if isinstance(value, tuple) else b"l") + varint(len(value)))
        for item in value:
            self._value(item, depth + 1)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> None:
        self.memory += ITEM * len(value)
        self.pieces.append(b"m" + varint(len(value)))
        for key, item in value.items():
            if not is_key(key):
                raise CodecError(f"a message contains a mapping whose key is a {type(key).__name__}: {KEYS}")
            self._value(key, depth + 1)
            self._value(item, depth + 1)

    def _kind(self, kind: type) -> bytes:
        known = self.types.get(kind)
        if known is None:
            self.types[kind] = varint(len(self.types) + 1)
            return introduction(kind)
        return known


_WRITERS: dict[type, Callable[[Encoder, Any, int], None]] = {
    np.ndarray: Encoder._array,
    np.memmap: Encoder._array,
    type(None): Encoder._none,
    bool: Encoder._flag,
    int: Encoder._whole,
    float: Encoder._real,
    str: Encoder._string,
    bytes: Encoder._binary,
    tuple: Encoder._sequence,
    list: Encoder._sequence,
    dict: Encoder._mapping,
}

KEYS = "expected text, bytes, an enum or a whole number of 64 bits"


def is_key(key: Any) -> bool:
    """Return whether a value may be a key. The hashes of others can be made to collide, which takes quadratic time."""
    if type(key) is int:
        return -(1 << 63) <= key < 1 << 63
    return type(key) in (str, bytes) or isinstance(key, enum.Enum)


@cache
def little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of numbers with the order of bytes on the wire."""
    return dtype.newbyteorder("<")
