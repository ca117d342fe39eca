"""The server's side of a deployed run before and after its federation: what it asks the sites, and what it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from raydr.arrays import Int64Array
from raydr.data import SiteFile
from raydr.data.site import laid_out
from raydr.data.survey.categories import Survey
from raydr.data.survey.spelling import Asked, Spelt, spell_together
from raydr.deployment.messages import (
    Agreement,
    FinishRequest,
    LabelRequest,
    ReadRequest,
    Size,
    SizeRequest,
    StartRequest,
    SurveyRequest,
    VoteRequest,
)
from raydr.errors import DataError
from raydr.federation import Context, FailurePolicy, Reply, Request, Transport
from raydr.federation.exchange import Exchange
from raydr.federation.meter import Meter
from raydr.federation.rounds import Rounds
from raydr.federation.wire import Answer, Call
from raydr.journal import Journal
from raydr.privacy.ledger import Ledger

R = TypeVar("R", bound=Reply)


class Port(Protocol):
    """Reaches the sites of a deployed run."""

    name: str

    def ask(self, call: Call) -> list[Answer]:
        """Return each site's answer to a request of :mod:`raydr.deployment.messages`, or a failure."""

    def transport(self, start: StartRequest) -> Transport:
        """Return the transport of a run that has started at all sites."""


@dataclass
class Sites:
    """The sites of a deployed run.

    Parameters
    ----------
    port : Port
        Reaches the sites.
    agreement : Agreement
        The scenario, and the names of the sites in client order.
    policy : FailurePolicy
        What to do if a site does not answer.
    journal : Journal
        Receives incidents.
    """

    port: Port
    agreement: Agreement
    policy: FailurePolicy = field(default_factory=FailurePolicy)
    journal: Journal = field(default_factory=Journal)
    _exchange: Exchange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        context, meter = Context(seed=0, policy=self.policy), Meter(self.journal)
        self._exchange = Exchange(
            transport=self.port,  # type: ignore[arg-type]  # nothing is summed
            clients=len(self.names),
            context=context,
            meter=meter,
            rounds=Rounds(context, meter, None, ()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self.agreement.sites

    @property
    def ledger(self) -> Ledger:
        """Every message so far."""
        return self._exchange.meter.ledger

    def lay_out(self, file: SiteFile) -> SiteFile:
        """Let the sites look at the scenario and agree on the columns to map; return how files are read then.

        Raises
        ------
        PolicyError, ClientError
            If a site refuses, or does not answer.
        DataError
            See :func:`raydr.data.site.laid_out`.
        """
        named = self._ask(ReadRequest(file=file, agreement=self.agreement))
        if not file.needs_layout:
            return file
        if file.cells:
            surveys = [
                Survey(dict.fromkeys(each.columns, "number"), least_sites=each.least_sites) for each in named
            ]
            return replace(file, layout=laid_out(file, surveys))
        held = self._ask(SurveyRequest(file))
        surveys = [
            Survey(found.kinds, units=found.units, least_sites=each.least_sites)
            for each, found in zip(named, held, strict=True)
        ]

        def spell(columns: Mapping[str, str | None], least: int) -> Mapping[str, Spelt]:
            def sums(asked: Asked) -> dict[str, Int64Array]:
                separators = {column: unit for column in asked if (unit := columns[column]) is not None}
                cast = self._ask(VoteRequest(file, asked, separators))
                return {
                    column: np.sum([each.votes[column] for each in cast], axis=0, dtype=np.int64)
                    for column in asked
                }

            return spell_together(columns, least, sums)

        # The messages are in the ledger, so the layout needs no count of them.
        return replace(file, layout=replace(laid_out(file, surveys, spell), agreement=None))

    def sizes(self, file: SiteFile) -> list[Size]:
        """Return each site's number of rows.

        Raises
        ------
        DataError
            If the sites differ in their features.
        """
        sizes = self._ask(SizeRequest(file))
        for name, size in zip(self.names, sizes, strict=True):
            if size.features != sizes[0].features:
                odd = sorted(set(size.features) ^ set(sizes[0].features)) or list(size.features)
                raise DataError(
                    f"The sites {name} and {self.names[0]} have different features, or in a different order"
                    f" ({', '.join(odd[:10])}): name the common ones in data.features."
                )
        return sizes

    def label_names(self, file: SiteFile) -> tuple[str, ...]:
        """Return the names of all labels, sorted.

        Raises
        ------
        DataError
            If a site has no labels.
        """
        told = self._ask(LabelRequest(file))
        for name, each in zip(self.names, told, strict=True):
            if not each.names:
                raise DataError(
                    f"The site {name} has no labels, but labels take part in this run (data.target_weight or"
                    " data.harmonize.keep): name the column in data.label."
                )
        return tuple(sorted({label for each in told for label in each.names}))

    def begin(self, start: StartRequest) -> Transport:
        """Start the run at all sites, and return its transport."""
        self._ask(start)
        return self.port.transport(start)

    def finish(self, request: FinishRequest) -> None:
        """Send each site its own part of the map."""
        self._ask(request)

    def _ask(self, request: Request[R]) -> list[R]:
        replies = self._exchange.replies(request, tuple(range(len(self.names))))
        return [replies[client] for client in range(len(self.names))]
