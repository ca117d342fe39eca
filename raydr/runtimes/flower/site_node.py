"""A site's node: it answers one message at a time, and keeps nothing in memory between two.

A fresh host answers each message. It repeats the calls that set the client's state and remembers what the client
answered once, all from the site's own folder (:mod:`raydr.runtimes.flower.site_record`). So a node that runs each
message in its own process, or was restarted, keeps every promise of a process that lives as long as the run. A server
cannot replace the history, because the site does not take it from the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from raydr.errors import RaydrError
from raydr.federation.codec import CodecError, decode, encode
from raydr.federation.failures import Failure, Kind
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.runtimes.flower.errands import Begin, Begun, Carry, Failed, packed, unpacked
from raydr.runtimes.flower.site_record import SiteRecord, site_record

_AT_SITE = "the site's own log says why"
_LOGGER = logging.getLogger(__name__)


class Host(Protocol):
    """The host of a site's one client.

    Attributes
    ----------
    before : list of Call
        Calls around the run that the host has answered and that a fresh host must answer again, such as its start.
    """

    @property
    def before(self) -> list[Call]: ...  # noqa: D102

    def ask(self, call: Call) -> list[Answer]:
        """Return the answer to a call."""

    def sum(self, call: SumCall) -> PartialSum:
        """Return the summand for a call."""

    def repeat(self, calls: Sequence[Call]) -> None:
        """Answer calls around the run again, without sending anything."""

    def restore(self, history: Sequence[Call]) -> None:
        """Start again from the rows as they were read, and repeat the calls that set the client's state."""

    def written_down(self) -> dict[str, Any]:
        """Return what the host must not forget, of values that may be in a message."""

    def read_again(self, notes: dict[str, Any]) -> None:
        """Remember what an earlier host has written down."""


@dataclass(frozen=True)
class SiteNode:
    """The node of one site.

    Attributes
    ----------
    folder : Path
        The site's own folder.
    host : callable
        Returns a fresh host of the site, from the number by which the server calls it.
    """

    folder: Path
    host: Callable[[int], Host]

    def answer(self, message: bytes) -> bytes:
        """Return the answer to one message.

        The text of an error of the site's own code stays at the site, because it can name values of records.
        """
        try:
            return packed(self._answer(unpacked(message)))
        except CodecError as error:
            return packed(Failed(Kind.REQUEST_REFUSED, str(error)))
        except RaydrError as error:
            _LOGGER.error("%s", error, exc_info=error)
            return packed(Failed(Kind.CLIENT_RAISED, f"{type(error).__name__}: {_AT_SITE}"))

    def _answer(self, errand: Any) -> Any:
        if not isinstance(errand, Begin | Carry):
            return Failed(Kind.REQUEST_REFUSED, f"a site does not answer a {type(errand).__name__}")
        with site_record(self.folder, errand.run) as record:
            if errand.start < record.start:
                return Failed(
                    Kind.REQUEST_REFUSED,
                    f"the message belongs to start {errand.start} of the run, but the site has seen start"
                    f" {record.start}",
                )
            if errand.start > record.start:
                record.begin(errand.start, forget_around=True)
            if isinstance(errand, Carry):
                return self._called(errand, record)
            record.begin(errand.start, forget_around=False)
            return Begun(errand.start)

    def _called(self, errand: Carry, record: SiteRecord) -> Answer | PartialSum | Failed:
        """Answer a call, and store what the client must not forget."""
        call = errand.whole
        if record.followed < errand.followed:
            return Failed(
                Kind.REQUEST_REFUSED,
                f"the site's record of this run ends before call {errand.followed}, which it has answered. If the"
                " site's folder was removed or replaced, start the run again",
            )
        if len(call.clients) != 1:
            return Failed(
                Kind.REQUEST_REFUSED, f"a site has one client, but the call asks {len(call.clients)}"
            )
        record.forget_between(errand.followed, call.number)
        host = self._restored(record, call.clients[0])
        around = len(host.before)
        answer: Answer | PartialSum
        if isinstance(call, SumCall):
            answer = host.sum(call)
            follows = bool(answer.clients)
        else:
            (answer,) = host.ask(call)
            follows = not isinstance(answer, Failure)
        record.note(encode(host.written_down()))
        if isinstance(answer, PartialSum):
            answer = replace(answer, failures=tuple(map(_discreet, answer.failures)))
        elif isinstance(answer, Failure):
            answer = _discreet(answer)
        is_around = len(host.before) > around
        if follows and (is_around or type(call.request).sets_state):
            record.follow(call.number, encode(call), around=is_around)
        return answer

    def _restored(self, record: SiteRecord, client: int) -> Host:
        """Return a host in the state that the record describes."""
        host = self.host(client)
        host.repeat([decode(call) for call in record.calls(around=True)])
        host.restore([decode(call) for call in record.calls(around=False)])
        notes = record.notes
        if notes is not None:
            host.read_again(decode(notes))
        return host


def _discreet(failure: Failure) -> Failure:
    """Return a failure without the text of an error of a client part."""
    if failure.kind is not Kind.CLIENT_RAISED:
        return failure
    _LOGGER.error("%s", failure.trace or failure.reason)
    return replace(failure, reason=f"{failure.reason.partition(':')[0]}: {_AT_SITE}", trace="")
