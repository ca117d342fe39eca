"""What a federated method is, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from raydr.arrays import FloatArray, Int64Array
from raydr.embedding import Embedder
from raydr.federation import Federation, Rehearsal
from raydr.geometry.points import Geometry, Points
from raydr.journal import Journal
from raydr.methods.outcome import Outcome, Placed, Pooled, draw_map
from raydr.methods.references import placed_by_rows, references
from raydr.privacy import Mechanism
from raydr.registry import Registry, kind_of, summary
from raydr.settings import Settings


class MethodSettings(Settings):
    """Settings of a method, and what raydr asks of the method besides its server part.

    The keys of a scenario's ``method`` section are the fields; ``kind`` is the method's name. Everything below has a
    default: a method overrides what differs.
    """

    kind: str

    noise_on: ClassVar[frozenset[str]] = frozenset()
    """Where clients can add noise: "data", "distances"."""
    some_noisy: ClassVar[bool] = False
    """Whether noise may be added by a part of the clients alone."""
    noise_of_its_own: ClassVar[bool] = False
    """Whether clients add noise with a claim to all that leaves them, by the method's own settings."""
    objective: ClassVar[str] = ""
    """What the objective that rounds report is, in sentences, where it may rise while the map gets better."""
    no_new_rows: ClassVar[str] = ""
    """Why maps take no new rows, as a clause, where a method without :meth:`transform` has more to say of it."""
    coordinate_copies: ClassVar[int] = 2
    """Copies, in double precision, that the server makes of the coordinates of all rows before it draws them."""

    @classmethod
    def offers(
        cls, what: Literal["central", "public_rows", "transform", "predict", "redraw", "rehearse"]
    ) -> bool:
        """Whether the method overrides what not every method has."""
        return getattr(cls, what) is not getattr(MethodSettings, what)

    def check(self, rows: int, features: int) -> None:
        """Raise ScenarioError or DataError if the settings do not fit so many rows; before any work is done."""

    @property
    def rounds_asked(self) -> int:
        """Number of rounds in which clients are asked; by default the key ``rounds``."""
        return int(getattr(self, "rounds", 0))

    @property
    def drawn_by(self) -> Embedder | None:
        """What draws the map at the server: the key ``embedder``, or settings that are an embedder; None: nothing."""
        named: Embedder | None = getattr(self, "embedder", None)
        return self if named is None and isinstance(self, Embedder) else named

    # What the evaluation compares the map with.

    def truth(self, rows: FloatArray) -> Geometry | None:
        """Return the true distances between pooled, scaled rows; by default None, the rows' own Euclidean ones."""
        return None

    def mapped(self, embedding: FloatArray) -> Geometry | None:
        """Return the distances on a map; by default None, those of its positions."""
        return None

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the pooled-data map, and clusters where the method makes any, which no federation would allow.

        Every federated map is measured against it. ``model`` is the federated run's. By default ``drawn_by`` draws it.
        """
        if self.drawn_by is None:
            raise NotImplementedError(f"method.kind {self.kind!r} has no central map: override central")
        embedding = draw_map(Points(rows), rows, self.drawn_by, seed=seed, journal=journal).embedding
        return Pooled(
            embedding, place=lambda new: placed_by_rows(references(embedding, rows, lambda means: means), new)
        )

    def redraw(
        self, snapshot: Mapping[str, FloatArray], parts: Sequence[FloatArray], seed: int, journal: Journal
    ) -> Outcome:
        """Return what the run would have come to had it ended after some round; not every method can.

        ``snapshot`` is one of :attr:`raydr.methods.outcome.Outcome.snapshots`, ``parts`` each client's scaled rows.
        """
        raise NotImplementedError(f"method.kind {self.kind!r} keeps no snapshots")

    # Rows that are not the clients'.

    def public_rows(self, rows: int, mapped: int | None, features: int, clients: int | None) -> int:
        """Return how many rows of the data to set apart for the server; see :mod:`raydr.methods.sense.anchors`."""
        return 0

    def needs_table(self) -> str | None:
        """Return why rows are set apart of one table, as a clause; None where sites may read files of their own."""
        return None

    @property
    def public_file(self) -> str | None:
        """Path of a file of rows that are nobody's secret."""
        return None

    # What leaves a client, and under which noise.

    def releases(self, noise: Mechanism) -> float:
        """Return how many answers noise covers: what an epsilon is divided among.

        An answer that is to spend less counts as the part that it spends; 0 where nothing of that sort is uploaded.
        """
        return 1

    def unpayable(self, noise: Mechanism) -> str | None:
        """Return why these settings cannot be had under a mechanism, as a clause; None where they can."""
        return None

    def posts(self) -> str | None:
        """Return what of each record leaves its client under no noise but that on data, as a clause; None: nothing."""
        return None

    def unkeyable(self) -> str | None:
        """Return why rows cannot be under an isometry key, as a clause; None where they can.

        They can where all that is computed depends on distances alone, or turns with the rows.
        """
        return "it is not known how this method treats rotated rows: leave it out"

    @property
    def keeps_places(self) -> bool:
        """Whether clients keep their records' places to themselves; by default by the key ``publish``."""
        return getattr(self, "publish", "server") == "local"

    # New rows on a finished map.

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, 2 or 3) of new rows (rows, features), scaled as the run's; not every method can."""
        raise NotImplementedError(f"maps of method.kind {self.kind!r} take no new rows")

    def predict(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Int64Array:
        """Return clusters (rows,) of new rows, by the same; not every method makes any."""
        raise NotImplementedError(f"method.kind {self.kind!r} makes no clusters")

    def admit(self, federation: Federation, model: Mapping[str, FloatArray]) -> Placed | None:
        """Return where the rows of a site lie that joins later, by a federation of that site alone.

        What it posts is what clients posted, and the map stands still. None where a place is all that is posted
        (:mod:`raydr.methods.joining`).
        """
        return None

    def unplaceable(self) -> str | None:
        """Return why maps under these settings take no new rows, as a clause; None where they do."""
        if self.offers("transform"):
            return None
        able = ", ".join(name for name, method in METHODS.items() if method.settings.offers("transform"))
        because = f" ({self.no_new_rows})" if self.no_new_rows else ""
        return (
            f"maps of method.kind {self.kind!r} take no new rows{because}; maps of these methods do: {able}"
        )

    # What `raydr plan` tells before anything starts.

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask clients what the server part asks them, without its arithmetic; without it messages are not known."""

    def server_bytes(self, rows: int, features: int, clients: int) -> int:
        """Return the bytes that the server holds at its fullest besides messages, coordinates and the map's graph."""
        return 0

    def central_operations(self, rows: int, features: int) -> float:
        """Return the floating-point operations of the pooled-data map, where no embedder draws it."""
        return 0.0


Serve = TypeVar("Serve", bound=Callable[[Federation, Any], Outcome])


@dataclass(frozen=True)
class Method:
    """A federated method: its settings and its server part, which meets the client part through messages.

    Attributes
    ----------
    settings : type of MethodSettings
        Its settings in a scenario, and what else raydr asks of it.
    serve : callable
        Its server part.
    title : str
        How its paper writes it.
    """

    settings: type[MethodSettings]
    serve: Callable[[Federation, Any], Outcome]
    title: str

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return summary(self.settings)


METHODS: Registry[Method] = Registry("methods", "raydr.methods", first=("landmarks", "sense"))
"""Every method by its ``method.kind``."""


def method(settings: type[MethodSettings], title: str) -> Callable[[Serve], Serve]:
    """Register a function as the server part of a method.

    Parameters
    ----------
    settings : type of MethodSettings
        Its settings in a scenario; the default of its ``kind`` is the method's name, the first line of its
        docstring what lists say of it.
    title : str
        How its paper writes it.

    Examples
    --------
    >>> from typing import Literal
    >>> class Nothing(MethodSettings):
    ...     '''Says nothing and maps nothing.'''
    ...     kind: Literal["nothing"] = "nothing"
    >>> @method(Nothing, "Nothing")  # doctest: +SKIP
    ... def serve(federation, settings): ...
    """

    def register(serve: Serve) -> Serve:
        METHODS.add(kind_of(settings), Method(settings, serve, title))
        return serve

    return register
