"""Messages around a deployed run: how files are read, what their columns hold, the sizes, the start and the end.

They take the place of a simulation's driver, which reads identities, labels and looks of all rows. Here the server
learns of a site: the names of its columns and what each holds, votes on words, its number of rows, and the names of its
labels if labels take part in distances. Identities and labels of rows stay at the site.

The site itself answers (:mod:`raydr.deployment.own_data`), because there are no rows before the files are read. So
these requests have no client part. Each has everything that its answer depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from raydr.arrays import FloatArray, UInt8Array
from raydr.data import SiteFile
from raydr.data.survey.categories import Kind as ColumnKind
from raydr.federation import Granularity, Range, Reply, Request
from raydr.privacy.ledger import Public
from raydr.statistics.steering import Target
from raydr.wire_types import travels


@travels
@dataclass(frozen=True)
class Agreement:
    """The scenario and the sites, to which a site can agree before anything leaves it.

    Attributes
    ----------
    scenario : str
        The scenario, as YAML.
    sites : tuple of str
        Names of all sites, in client order.
    """

    scenario: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class ColumnNames(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="the names of a site's columns",
    public=Public.SHAPES,
):
    """``columns`` are those that the site's policy allows; ``least_sites`` is the policy's least number of sites."""

    columns: tuple[str, ...]
    least_sites: int

    @staticmethod
    def ranges(request: ReadRequest, rows: int) -> dict[str, Range]:
        """Declare text and a number."""
        return {"columns": Range(()), "least_sites": Range(())}


@dataclass(frozen=True, kw_only=True)
class ReadRequest(Request[ColumnNames], what="the scenario, and how the site's file is to be read"):
    """The first request of a run.

    Attributes
    ----------
    file : SiteFile
        How the file is read: label, columns, missing values, words. Its path and policy are empty: a site has its own.
    agreement : Agreement
        What the site can agree to.
    """

    file: SiteFile
    agreement: Agreement


@dataclass(frozen=True)
class ColumnSurvey(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="what each of a site's columns holds: numbers and their unit, angles, pairs, text of few words, one word, an"
    " identity, free text, dates or nothing",
):
    """``kinds`` and ``units`` by column, of the columns that the site's policy allows."""

    kinds: Mapping[str, ColumnKind]
    units: Mapping[str, str]

    @staticmethod
    def ranges(request: SurveyRequest, rows: int) -> dict[str, Range]:
        """Declare text."""
        return {"kinds": Range(()), "units": Range(())}


@dataclass(frozen=True)
class SurveyRequest(Request[ColumnSurvey], what="a request for what each column holds"):
    """Sent only if the sites must agree on the columns to map; ``file`` as in :class:`ReadRequest`."""

    file: SiteFile


@dataclass(frozen=True)
class WordVotes(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="for each beginning of a word in a column of text and each next byte, whether enough of a site's rows have a"
    " word that continues like this (0 or 1)",
):
    """``votes`` by column: (beginnings, 257) uint8."""

    votes: Mapping[str, UInt8Array]

    @staticmethod
    def ranges(request: VoteRequest, rows: int) -> dict[str, Range]:
        """Declare votes."""
        return {"votes": Range(())}


@dataclass(frozen=True)
class VoteRequest(Request[WordVotes], what="beginnings of words in columns of text"):
    """Request for votes.

    Attributes
    ----------
    file : SiteFile
        As in :class:`ReadRequest`.
    beginnings : mapping of column to tuple of bytes
        Beginnings to vote for.
    separators : mapping of column to str
        What separates the words of a column of lists; columns of single words are absent.
    """

    file: SiteFile
    beginnings: Mapping[str, tuple[bytes, ...]]
    separators: Mapping[str, str]


@dataclass(frozen=True)
class Size(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="a site's number of rows, the names of its features, and a digest of its rows that only the site can compute",
    public=Public.SHAPES,
):
    """``mark`` is the digest. A resumed run refuses another one."""

    rows: int
    features: tuple[str, ...]
    named: bool
    mark: str

    @staticmethod
    def ranges(request: SizeRequest, rows: int) -> dict[str, Range]:
        """Declare numbers and text."""
        return {name: Range(()) for name in ("rows", "features", "named", "mark")}


@dataclass(frozen=True)
class SizeRequest(Request[Size], what="the columns to map, and in which form"):
    """``file`` as in :class:`ReadRequest`, with the common layout; without one, a site maps all columns of its file."""

    file: SiteFile


@dataclass(frozen=True)
class LabelNames(
    Reply, granularity=Granularity.PER_CLIENT, what="the names of the labels that a site's rows have"
):
    """``names`` are sorted; empty if the site has no labels."""

    names: tuple[str, ...]

    @staticmethod
    def ranges(request: LabelRequest, rows: int) -> dict[str, Range]:
        """Declare text."""
        return {"names": Range(())}


@dataclass(frozen=True)
class LabelRequest(
    Request[LabelNames], what="a request for the names of the labels, which take part in distances"
):
    """Sent only if labels take part in distances or in harmonizing; ``file`` as in :class:`SizeRequest`."""

    file: SiteFile


@dataclass(frozen=True)
class Agreed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a site has done what it was asked",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: Any, rows: int) -> dict[str, Range]:
        """Declare no field."""
        return {}


@dataclass(frozen=True, kw_only=True)
class StartRequest(
    Request[Agreed],
    what="the scenario, the run's name and seed, and how labels are numbered",
    sets_state=True,
):
    """Sent before the federation begins.

    Attributes
    ----------
    file : SiteFile
        As in :class:`SizeRequest`.
    agreement : Agreement
        As in :class:`ReadRequest`.
    run : str
        Name of the run.
    seed : int
        Seed of the run.
    marks : tuple of str
        Each site's digest of its rows, which it checks again.
    label_names : tuple of str
        Names of all labels; empty if labels take no part.
    keeps_classes : bool
        Whether harmonizing keeps the effect of the label.
    target : Target or None
        How labels steer; None if they do not.
    """

    file: SiteFile
    agreement: Agreement
    run: str
    seed: int
    marks: tuple[str, ...]
    label_names: tuple[str, ...] = ()
    keeps_classes: bool = False
    target: Target | None = None


@dataclass(frozen=True)
class FinishRequest(Request[Agreed], what="the site's own part of the map, and the model for new rows"):
    """Sent to each site after the run.

    Attributes
    ----------
    places : mapping of client to (rows, 2 or 3) array
        Places of each site's own rows, or of one site's. Empty if the sites keep the places themselves.
    model : mapping of name to array
        Model for new rows, with the preparation of rows.
    fidelity_rows : int
        Number of query rows of ``fidelity``; 0 without an estimate.
    fidelity, errors : mapping of str to float
        Fidelity of the whole map, estimated without pooling, and its standard errors.
    """

    places: Mapping[int, FloatArray]
    model: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    fidelity_rows: int = 0
    fidelity: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)

    def addressed_to(self, client: int) -> FinishRequest:
        """Return the request with the places of one site."""
        if not self.places or tuple(self.places) == (client,):
            return self
        return replace(self, places={client: self.places[client]})


ABOUT_FILES: tuple[type[Request[Any]], ...] = (
    ReadRequest,
    SurveyRequest,
    VoteRequest,
    SizeRequest,
    LabelRequest,
)
"""Requests about a site's file, in the order of a run."""
