"""A site in a deployed run, as a process that lives as long as the run: what it answers, and what it keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Table
from raydr.deployment.ledger import SiteLedger
from raydr.deployment.messages import ABOUT_FILES, Agreed, FinishRequest, ReadRequest, StartRequest
from raydr.deployment.own_data import OwnData
from raydr.deployment.site_settings import SiteSettings
from raydr.errors import RaydrError, RunError
from raydr.federation import ClientHost, Reply
from raydr.federation.failures import Failure, Kind
from raydr.federation.gate import RefusedByPolicyError
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall
from raydr.privacy.ledger import Granularity
from raydr.privacy.policy import SitePolicy

_LOGGER = logging.getLogger(__name__)
_IN_LOG = "the site's own log has the rest"


@dataclass(kw_only=True, frozen=True)
class Finished:
    """Content that a site has at the end of a run.

    Attributes
    ----------
    site : SiteSettings
        The site's settings.
    client : int
        Number of the site.
    start : StartRequest
        The start of the run.
    table : Table
        The site's rows, with their identities and labels.
    places : (rows, 2 or 3) array
        Places of the rows on the map.
    request : FinishRequest
        What the server sent at the end.
    kept : tuple of Reply
        Replies that stayed at the site.
    ledger : SiteLedger
        Every message that the site received and sent.
    policy : SitePolicy
        The site's policy.
    """

    site: SiteSettings
    client: int
    start: StartRequest
    table: Table
    places: FloatArray
    request: FinishRequest
    kept: tuple[Reply, ...]
    ledger: SiteLedger
    policy: SitePolicy


def finished(
    own: OwnData,
    client: int,
    start: StartRequest,
    request: FinishRequest,
    kept: Sequence[Reply],
    ledger: SiteLedger,
) -> Finished:
    """Return what a site has at the end of a run; ``kept`` are the replies that stayed at the site.

    Raises
    ------
    RunError
        If there is no place for each of the site's rows.
    """
    table = own.table(start.file)
    places = request.places.get(client)
    if places is None:
        places = next((found for found in map(_of_records, kept) if found is not None), None)
    if places is None or len(places) != len(table.rows):
        raise RunError("the server sent no places for the site's rows")
    return Finished(
        site=own.site,
        client=client,
        start=start,
        table=table,
        places=np.asarray(places),
        request=request,
        kept=tuple(kept),
        ledger=ledger,
        policy=own.policy(start.file),
    )


def keep_nothing(ended: Finished) -> None:
    """Keep nothing at the end of a run."""


@dataclass(kw_only=True)
class SiteHost:
    """The host of one site for one run.

    A process that answers one message can be a new one: it repeats the calls ``before`` and those that set the client's
    state, and reads what an earlier host has written down.

    Parameters
    ----------
    site : SiteSettings
        The site's settings.
    index : int
        Number of the site among the clients.
    at_end : callable
        Receives what the site has at the end of a run, to keep it at the site.

    Attributes
    ----------
    before : list of Call
        Calls around the run that the site has answered and that set its state: the start.
    """

    site: SiteSettings
    index: int
    at_end: Callable[[Finished], None] = keep_nothing
    before: list[Call] = field(default_factory=list)
    own: OwnData = field(init=False)
    ledger: SiteLedger = field(init=False)
    _start: StartRequest | None = field(default=None, repr=False)
    _host: ClientHost | None = field(default=None, repr=False)
    _kept: dict[str, Reply] = field(default_factory=dict, repr=False)
    _once: dict[str, Any] = field(default_factory=dict, repr=False)
    _distrust: str = field(default="", repr=False)
    _ended: Finished | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.own, self.ledger = OwnData(self.site), SiteLedger(self.index)

    @property
    def clients(self) -> tuple[int, ...]:
        """The site's number."""
        return (self.index,)

    def restore(self, history: Sequence[Call]) -> None:
        """Start again from the rows as they were read, and repeat the calls that set the client's state."""
        self._kept.clear()
        if self._host is not None:
            self._host.restore(history)

    def repeat(self, calls: Sequence[Call]) -> None:
        """Answer calls around the run again, without sending anything."""
        for call in calls:
            self._answer(call)
            self.before.append(call)

    def written_down(self) -> dict[str, Any]:
        """Return what another process needs to go on, of values that may be in a message.

        This is the ledger, what the site answered once in each run (:meth:`ClientHost.noted`), and the replies that
        stay here until the end, and why the site takes no further part.
        """
        once = dict(self._once)
        if self._start is not None and self._host is not None:
            once[self._start.run] = self._host.noted(self.index)
        return {
            "once": once,
            "kept": dict(self._kept),
            "ledger": self.ledger.written_down(),
            "distrust": self._distrust,
        }

    def read_again(self, notes: Mapping[str, Any]) -> None:
        """Remember what an earlier host has written down; call :meth:`repeat` and :meth:`restore` first."""
        self._once, self._kept = dict(notes["once"]), dict(notes["kept"])
        self._distrust = notes["distrust"]
        self.ledger.read_again(notes["ledger"])
        if self._start is not None:
            self._recall(self._start.run)

    def ask(self, call: Call) -> list[Answer]:
        """Return the site's answer. After a public key that it does not trust, the site refuses the run."""
        if self._distrust and not isinstance(call.request, (*ABOUT_FILES, StartRequest)):
            return [self._distrusting()]
        if not isinstance(call.request, (*ABOUT_FILES, StartRequest, FinishRequest)):
            return [self._leaving(call, answer) for answer in self._running().ask(call)]
        try:
            reply = self._answer(call)
        except RefusedByPolicyError as error:
            return [Failure(self.index, Kind.POLICY, str(error))]
        except Exception as error:
            _LOGGER.error("%s: %s", self.site.name, error, exc_info=not isinstance(error, RaydrError))
            reason = f"site {self.site.name!r} cannot answer: {_IN_LOG}"
            return [Failure(self.index, Kind.CLIENT_RAISED, reason)]
        if type(call.request).sets_state:
            self.before.append(call)
        self.ledger.received(call)
        self.ledger.sent(reply, "server")
        self._end()
        return [Answered(self.index, call.number, call.round, reply)]

    def sum(self, call: SumCall) -> PartialSum:
        """Return the site's summand."""
        if self._distrust:
            return PartialSum(number=call.number, round=call.round, failures=(self._distrusting(),))
        part = self._running().sum(call)
        if part.clients:
            self.ledger.received(call)
            self.ledger.added(part, call, self._running())
        return replace(part, failures=tuple(map(self._as_told, part.failures)))

    def _answer(self, call: Call) -> Reply:
        request = call.request_for(self.index)
        match request:
            case StartRequest():
                self._start, self._host = request, self.own.host(request, self.index)
                self._kept.clear()
                self._distrust = ""
                self.ledger.start(request.run)
                self._recall(request.run)
                return Agreed()
            case FinishRequest():
                if self._start is None:
                    raise RunError("the run has not started")
                kept = tuple(self._kept.values())
                self._ended = finished(self.own, self.index, self._start, request, kept, self.ledger)
                return Agreed()
            case ReadRequest() if not call.attempt:
                self.ledger.begin(self.own.policy(request.file))
        return self.own.answer(call)

    def _end(self) -> None:
        """Keep what the site has at the end of a run, with the last message in its ledger."""
        ended, self._ended = self._ended, None
        if ended is None:
            return
        try:
            self.at_end(ended)
        except Exception as error:  # the run is complete, and the server has its result
            _LOGGER.error("%s: %s", self.site.name, error, exc_info=not isinstance(error, RaydrError))

    def _recall(self, run: str) -> None:
        """Let the host remember what it answered once in an earlier start of the run."""
        known = self._once.get(run)
        if known is not None:
            self._running().recall(self.index, known)

    def _running(self) -> ClientHost:
        if self._host is None:
            raise RunError("the server asks about rows before the run has started")
        return self._host

    def _leaving(self, call: Call, answer: Answer) -> Answer:
        """Return an answer as it may leave."""
        if isinstance(answer, Failure):
            return self._as_told(answer)
        self.ledger.received(call)
        if type(answer.reply).stays:
            self._kept[type(answer.reply).__name__] = answer.reply
            return withheld(answer)
        self.ledger.answered(answer, call, self._running())
        return answer

    def _as_told(self, failure: Failure) -> Failure:
        """Return a failure as the server may know it, and remember that a public key is not to be trusted."""
        if failure.kind is Kind.UNTRUSTED_KEY:
            self._distrust = failure.reason
        return without_error_text(failure)

    def _distrusting(self) -> Failure:
        return Failure(self.index, Kind.UNTRUSTED_KEY, self._distrust)


def without_error_text(failure: Failure) -> Failure:
    """Return a failure without the text of an error of the site's own code, which can name values."""
    if failure.kind is not Kind.CLIENT_RAISED:
        return failure
    _LOGGER.error("%s", failure.trace or failure.reason)
    return replace(failure, reason=f"{failure.reason.partition(':')[0]}: {_IN_LOG}", trace="")


def withheld(answer: Answered) -> Answered:
    """Return an answer whose reply stays at the site, with zeros in place of its content."""
    reply: Any = answer.reply
    zeros = {
        name: np.zeros_like(value) if isinstance(value, np.ndarray) else type(value)()
        for name, value in vars(reply).items()
    }
    return replace(answer, reply=replace(reply, **zeros))


def _of_records(reply: Reply) -> FloatArray | None:
    """Return the places (rows, 2 or 3) in a reply about single records, which has nothing else; else None."""
    if type(reply).granularity is not Granularity.PER_RECORD:
        return None
    (places,) = vars(reply).values()
    return np.asarray(places)
