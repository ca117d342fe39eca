"""Messages between the server of a run and a site's node, which carry a run's calls.

A message is one of these values as bytes (:mod:`raydr.federation.codec`). A node answers a call with its client's
answer or partial sum, or with :class:`Failed`.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        The call.
    """

    run: str
    start: int
    followed: int
    call: Call


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
