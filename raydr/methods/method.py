"""What a federated method is, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from raydr.arrays import FloatArray, Int64Array
from raydr.federation import Federation, Rehearsal
from raydr.geometry.points import Geometry, Points
from raydr.journal import Journal
from raydr.methods.outcome import Outcome, Placed, Pooled, draw_map
from raydr.methods.references import placed_by_rows, references
from raydr.privacy import Mechanism
from raydr.registry import Registry, kind_of, summary
from raydr.settings import Settings


class MethodSettings(Settings):
    """Settings of a method; ``kind`` is the method's name."""

    kind: str

    def check(self, rows: int, features: int) -> None:
        """Raise ScenarioError or DataError if the settings do not fit so many rows; before any work is done."""


Serve = TypeVar("Serve", bound=Callable[[Federation, Any], Outcome])


def _euclidean(settings: Any, rows: FloatArray) -> Geometry | None:
    return None


def _by_itself(
    settings: Any, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
) -> Pooled:
    embedding = draw_map(Points(rows), rows, settings, seed=seed, journal=journal).embedding
    return Pooled(
        embedding, place=lambda new: placed_by_rows(references(embedding, rows, lambda means: means), new)
    )


def _by_publish(settings: Any) -> bool:
    return getattr(settings, "publish", "server") == "local"


def _own_rounds(settings: Any) -> int:
    return int(settings.rounds)


def _none(settings: Any) -> str | None:
    return None


def _unknown(settings: Any) -> str | None:
    return "nothing is known of what this method makes of rows that are turned: leave it out"


def _one(settings: Any, noise: Mechanism) -> int:
    return 1


def _nothing(settings: Any, noise: Mechanism) -> str | None:
    return None


@dataclass(frozen=True)
class Method:
    """A federated method: its settings and its server part, which meets the client part through messages.

    Attributes
    ----------
    settings : type of MethodSettings
        Its settings in a scenario.
    serve : callable
        Its server part.
    title : str
        How its paper writes it.
    truth : callable
        True distances between the pooled, scaled rows, by settings and rows; by default None, the rows' own
        Euclidean ones.
    mapped : callable
        Distances on a map, by settings and map; by default None, those of its positions.
    central : callable
        The pooled-data map, and clusters where the method makes any, by settings, the federated run's model, rows,
        seed and journal: what every federated map is measured against, and no federation would allow. By default by
        the settings, which are then an embedder.
    public_rows : callable
        How many rows of the data to set apart for the server, by settings, rows, rows to be mapped, features and
        clients (:meth:`raydr.methods.sense.anchors.AnchorSettings.public_rows`); None for methods that never do.
    needs_table : callable
        Why these settings need one table to set rows apart from, as a clause for people; None where clients may as
        well read files of their own.
    public_file : callable
        Path of a file of rows that are nobody's secret, by settings; by default None.
    rounds : callable
        Number of rounds in which clients are asked, by settings; by default the settings' own.
    noise_on : set of str
        Where clients can add noise: "data", "distances".
    some_noisy : bool
        Whether noise may be added by a part of the clients alone.
    releases : callable
        How many answers noise covers, by settings and mechanism: what an epsilon is divided among, those that are to
        spend less counted as the part that they spend; 0 where these settings upload nothing of that sort.
    unpayable : callable
        Why these settings cannot be had under a mechanism, as a clause for people, by settings and mechanism; None
        where they can.
    noise_of_its_own : bool
        Whether clients add noise with a claim to all that leaves them, by the method's own settings.
    objective : str
        What the objective that rounds report is, in sentences for people, where it may rise while the map gets better.
    posts : callable
        What of each record leaves its client under no noise but that on data, as a clause for people, by settings;
        None where nothing does.
    unkeyable : callable
        Why clients' rows cannot be under an isometry key, as a clause for people, by settings; None where they can:
        where all that is computed depends on distances alone, or turns with the rows.
    transform : callable
        Positions of new rows on the map, by settings, the run's model and rows scaled as the run's; None for methods
        whose map takes no new rows.
    predict : callable
        Clusters of new rows, (rows,) int64, by the same; None for methods that make none.
    admit : callable
        Where the rows of a site lie that joins later, by a federation of that site alone, settings and the run's
        model: what it posts is what clients posted, and the map stands still. None, by itself or of a call, where a
        place is all that is posted (:mod:`raydr.methods.joining`).
    keeps_places : callable
        Whether clients keep their records' places to themselves, by settings; by default by ``publish``, if there.
    unplaceable : callable
        Why maps under these settings take no new rows, as a clause for people, by settings; None where they do.
    redraw : callable
        What the run would have come to had it ended after some round, by settings, snapshot
        (:attr:`raydr.methods.outcome.Outcome.snapshots`), each client's scaled rows, seed and journal: for the
        evaluation, which sees the rows; None for methods that keep no snapshots.
    rehearse : callable
        Asks clients what ``serve`` asks them, without its arithmetic, by a rehearsal and settings: what ``raydr plan``
        counts. None for methods of which that is not known beforehand.
    """

    settings: type[MethodSettings]
    serve: Callable[[Federation, Any], Outcome]
    title: str
    truth: Callable[[Any, FloatArray], Geometry | None] = _euclidean
    mapped: Callable[[Any, FloatArray], Geometry | None] = _euclidean
    central: Callable[[Any, Mapping[str, FloatArray], FloatArray, int, Journal], Pooled] = _by_itself
    public_rows: Callable[[Any, int, int | None, int, int | None], int] | None = None
    needs_table: Callable[[Any], str | None] = _none
    public_file: Callable[[Any], str | None] = _none
    rounds: Callable[[Any], int] = _own_rounds
    noise_on: frozenset[str] = frozenset()
    some_noisy: bool = False
    releases: Callable[[Any, Mechanism], float] = _one
    unpayable: Callable[[Any, Mechanism], str | None] = _nothing
    noise_of_its_own: bool = False
    objective: str = ""
    posts: Callable[[Any], str | None] = _none
    unkeyable: Callable[[Any], str | None] = _unknown
    transform: Callable[[Any, Mapping[str, FloatArray], FloatArray], FloatArray] | None = None
    predict: Callable[[Any, Mapping[str, FloatArray], FloatArray], Int64Array] | None = None
    admit: Callable[[Federation, Any, Mapping[str, FloatArray]], Placed | None] | None = None
    keeps_places: Callable[[Any], bool] = _by_publish
    unplaceable: Callable[[Any], str | None] = _none
    redraw: Callable[[Any, Mapping[str, FloatArray], Sequence[FloatArray], int, Journal], Outcome] | None = (
        None
    )
    rehearse: Callable[[Rehearsal, Any], None] | None = None

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return summary(self.settings)


METHODS: Registry[Method] = Registry("methods", "raydr.methods", first=("landmarks", "sense"))
"""Every method by its ``method.kind``."""


def unplaceable(settings: MethodSettings) -> str | None:
    """Why maps of a method under these settings take no new rows, as a clause for people; None where they do."""
    reason = METHODS[settings.kind].unplaceable(settings)
    if METHODS[settings.kind].transform is None:
        able = ", ".join(name for name, method in METHODS.items() if method.transform is not None)
        because = "" if reason is None else f" ({reason})"
        return (
            f"maps of method.kind {settings.kind!r} take no new rows{because}, and maps of these do: {able}"
        )
    return reason


def method(settings: type[MethodSettings], title: str, **more: Any) -> Callable[[Serve], Serve]:
    """Register a function as the server part of a method.

    Parameters
    ----------
    settings : type of MethodSettings
        Its settings in a scenario; the default of its ``kind`` is the method's name, the first line of its
        docstring what lists say of it.
    title, **more
        See :class:`Method`.

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
        METHODS.add(kind_of(settings), Method(settings, serve, title, **more))
        return serve

    return register
