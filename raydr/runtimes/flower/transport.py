"""Transport of a federation's calls to sites' nodes, over anything that carries bytes to a named site."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from raydr.federation.codec import CodecError
from raydr.federation.enrolment import Enrolment
from raydr.federation.failures import ClientError, Failure, Kind
from raydr.federation.messages import RefusedReplyError, declared_ranges
from raydr.federation.transport import WorkHere
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall, weight_of
from raydr.runtimes.flower.errands import Begin, Begun, Carry, Failed, packed, unpacked


class Courier(Protocol):
    """Carries one message to each of some sites, and brings their answers."""

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        """Return each site's answer, or why there is none, in ``timeout_s`` seconds at most."""


@dataclass(kw_only=True)
class FlowerTransport(WorkHere):
    """The transport of a federation over sites' nodes.

    Attributes
    ----------
    courier : Courier
        Carries the messages.
    sites : sequence of str
        Name of each client's site, in client order.
    run : str
        Name of the run, under which sites keep their records.
    timeout_s : float
        Seconds that a site has for one message.
    attempts : int
        How often a site is told that the calls begin before it counts as lost.
    start : int
        Number of this start of the run; by default nanoseconds since 1970, so that each start has a larger one.
    """

    courier: Courier
    sites: Sequence[str]
    run: str
    timeout_s: float = 600.0
    attempts: int = 3
    start: int = field(default_factory=time.time_ns)
    _rows: dict[int, int] = field(default_factory=dict, repr=False)
    _followed: dict[int, int] = field(default_factory=dict, repr=False)

    def reset(self) -> None:
        """Let every site start again from its rows; calls around the run still hold.

        Raises
        ------
        ClientError
            If a site is not ready.
        """
        self._followed.clear()
        pending = dict.fromkeys(self.sites, packed(Begin(self.run, self.start)))
        for left in reversed(range(self.attempts)):
            found = self._exchanged(pending)
            failed = {site: answer for site, answer in found.items() if not isinstance(answer, Begun)}
            if not failed:
                return
            final = any(_failed(answer).kind not in _MENDABLE for answer in failed.values())
            if final or not left:
                raise ClientError(
                    "The run cannot start. "
                    + " ".join(f"{site}: {_failed(answer).reason}." for site, answer in failed.items())
                )
            pending = {site: pending[site] for site in failed}

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer for each client asked."""
        answers = [self._answer(call, client, found) for client, found in self._carried(call)]
        self._remember(call, (answer.client for answer in answers if isinstance(answer, Answered)))
        return answers

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        """Yield one partial sum of each client asked."""
        for client, found in self._carried(call):
            part = self._summand(call, client, found)
            self._remember(call, part.clients)
            yield part

    def _carried(self, call: Call) -> list[tuple[int, Any]]:
        """Return the answer of each client's site, in client order."""
        found = self._exchanged(
            {
                self.sites[client]: packed(
                    Carry.of(self.run, self.start, self._followed.get(client, 0), call.cut((client,)))
                )
                for client in call.clients
            }
        )
        return [(client, found[self.sites[client]]) for client in call.clients]

    def _remember(self, call: Call, answered: Iterable[int]) -> None:
        """Note which clients have followed a call that sets their state."""
        if type(call.request).sets_state:
            self._followed.update(dict.fromkeys(answered, call.number))

    def _exchanged(self, messages: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the decoded answer of each site; a failure if it has none that can be read."""
        found = self.courier.exchange(messages, self.timeout_s)
        return {site: _decoded(found.get(site)) for site in messages}

    def _answer(self, call: Call, client: int, found: Any) -> Answer:
        """Return a site's answer if it is one to this call, within the declared ranges; else a failure."""
        if isinstance(found, Failure) and found.client == client:
            return found
        if not isinstance(found, Answered):
            return self._failure(client, found)
        request = call.request_for(client)
        try:
            if found.client != client or type(found.reply) is not type(request).reply:
                raise RefusedReplyError(
                    f"client {client} answered with a {type(found.reply).__name__} of client {found.client}"
                )
            if isinstance(found.reply, Enrolment):
                self._rows[client] = found.reply.rows
            rows = self._rows.get(client)
            # Before the enrolment, sites describe their files, partly with text.
            ranges = {} if rows is None else declared_ranges(type(request).reply, request, rows)
            for name, declared in ranges.items():
                declared.check(name, getattr(found.reply, name))
        except RefusedReplyError as error:
            return self._failure(client, Failed(Kind.REFUSED, str(error)))
        return found

    def _summand(self, call: SumCall, client: int, found: Any) -> PartialSum:
        """Return a site's partial sum if it is one to this call; else one that has only a failure."""
        if isinstance(found, PartialSum):
            try:
                self._check(call, client, found)
                return found
            except RefusedReplyError as error:
                found = Failed(Kind.REFUSED, str(error))
        return PartialSum(number=call.number, round=call.round, failures=(self._failure(client, found),))

    def _failure(self, client: int, found: Any) -> Failure:
        """Return the failure of a site that has no answer, with its name."""
        failed = _failed(found)
        return Failure(client, failed.kind, f"site {self.sites[client]!r}: {failed.reason}")

    def _check(self, call: SumCall, client: int, part: PartialSum) -> None:
        """Raise RefusedReplyError unless a partial sum is of this client, with the declared fields."""
        if any(failure.client != client for failure in part.failures) or part.clients not in ((), (client,)):
            raise RefusedReplyError(f"client {client} answered for other clients")
        if not part.clients:
            return
        request = call.request_for(client)
        kind = type(request).reply
        if part.reply is not kind:
            raise RefusedReplyError(f"client {client} answered with another type than {kind.__name__}")
        ranges = declared_ranges(kind, request, 0)
        for name, declared in ranges.items():
            if declared.sealed:
                kept = part.sealed.get(name, {})
                if kept.keys() != {client}:
                    raise RefusedReplyError(f"{name} is missing")
                declared.check(name, kept[client])
                continue
            total = part.totals.get(name)
            if total is None or total.shape != declared.shape or total.dtype != f"int{declared.bits}":
                raise RefusedReplyError(f"{name} is not the sum that was declared")
        if {*part.totals, *part.sealed} != ranges.keys():
            raise RefusedReplyError("the sum has other fields than were declared")
        if part.weight != weight_of(self._rows.get(client, 0), call.weighting):
            raise RefusedReplyError(
                f"the sum has the weight {part.weight}, which the client's rows do not have"
            )


_MENDABLE = Kind.TIMED_OUT, Kind.PROCESS_DIED, Kind.NODE_LOST


def _decoded(answer: bytes | Failed | None) -> Any:
    if answer is None:
        return Failed(Kind.TIMED_OUT, "no answer")
    if isinstance(answer, Failed):
        return answer
    try:
        return unpacked(answer)
    except CodecError as error:
        return Failed(Kind.REFUSED, str(error))


def _failed(answer: Any) -> Failed:
    if isinstance(answer, Failed):
        return answer
    return Failed(Kind.REFUSED, f"the site answered with a {type(answer).__name__}")
