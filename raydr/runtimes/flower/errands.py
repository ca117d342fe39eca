"""Messages between the server of a run and a site's node, which carry a run's calls.

A message is one of these values as bytes (:mod:`raydr.federation.codec`), after a digest of the bytes. A node answers
a call with its client's answer or partial sum, or with :class:`Failed`.

The digest detects a change between the server and a site, such as that of one digit within its declared range. It is
not keyed: someone who changes the digest too is not detected. TLS and the keys of the nodes keep others out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from raydr.federation.codec import CodecError, decode, encode
from raydr.federation.failures import Kind
from raydr.federation.wire import Call
from raydr.wire_types import travels


@travels
@dataclass(frozen=True)
class Begin:
    """Tells a site to forget the calls that set its client's state in this start of the run.

    Attributes
    ----------
    run : str
        Name of the run, which the server chooses.
    start : int
        Number of this start. A site refuses messages of an earlier one.
    """

    run: str
    start: int


@travels
@dataclass(frozen=True)
class Begun:
    """The site is ready for the calls of this start."""

    start: int


@travels
@dataclass(frozen=True)
class Carry:
    """A call of a run, cut to the site's client.

    Attributes
    ----------
    run, start
        See :class:`Begin`.
    followed : int
        Number of the last call that set the client's state, by the server's count; 0 if there was none. A site that has
        forgotten it refuses the call.
    call : Call
        The call, without its parts.
    is_part : bool
        Whether the call's request is the client's part of a request that the server has cut.
    """

    run: str
    start: int
    followed: int
    call: Call
    is_part: bool = False

    @classmethod
    def of(cls, run: str, start: int, followed: int, call: Call) -> Carry:
        """Return the message for the one client of a call. It contains the client's part once."""
        return cls(run, start, followed, replace(call, parts={}), bool(call.parts))

    @property
    def whole(self) -> Call:
        """The call as the server has cut it."""
        parts = dict.fromkeys(self.call.clients, self.call.request) if self.is_part else {}
        return replace(self.call, parts=parts)


@travels
@dataclass(frozen=True)
class Failed:
    """Why a site has no answer.

    Attributes
    ----------
    kind : Kind
        Where it failed.
    reason : str
        What the server may know of it. The site's log has the rest.
    """

    kind: Kind
    reason: str


_DIGEST_BYTES = 32


def packed(errand: Any) -> bytes:
    """Return a message: the digest of a value, and the value."""
    content = encode(errand)
    return hashlib.sha256(content).digest() + content


def unpacked(message: bytes) -> Any:
    """Return the value of a message.

    Raises
    ------
    CodecError
        If the message changed on its way, or cannot be read.
    """
    digest, content = message[:_DIGEST_BYTES], message[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise CodecError("the message changed on its way: its digest does not match its content")
    return decode(content)
