"""The contract of a federated method, and the registry of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.embedding import Embedder, StartsFromPlaces
from raydr.federation import Federation, Rehearsal
from raydr.geometry.points import Geometry
from raydr.geometry.sparse_points import points_of
from raydr.journal import Journal
from raydr.methods.outcome import Outcome, Placed, Pooled, draw_map
from raydr.methods.references import placed_by_rows, pooled_references
from raydr.privacy import Mechanism
from raydr.privacy.accounting import Budget
from raydr.registry import Registry, kind_of, summary
from raydr.settings import MessageSettings
from raydr.statistics.noisy_survey import SurveyNoise

OTHER_METHOD = "choose fed-umap, fed-tsne, fed-spectral, fed-pca or sense"
"""Remedy if a method makes a sparse table dense."""


class MethodSettings(MessageSettings):
    """Settings of a method, and hooks for everything besides its server part.

    The keys of a scenario's ``method`` section are the fields; ``kind`` is the method's name. Every hook has
    a default; override those that differ.
    """

    kind: str

    noise_on: ClassVar[frozenset[str]] = frozenset()
    """Quantities that clients can add noise to: "data", "distances"."""
    some_noisy: ClassVar[bool] = False
    """Whether noise may be added by some of the clients alone."""
    noise_of_its_own: ClassVar[bool] = False
    """Whether the method's own settings add noise with a privacy claim to everything that leaves clients."""
    draws_all_rows: ClassVar[bool] = True
    """Whether ``drawn_by``, if there is one, draws the map of all rows, and not only of some reference rows."""
    objective: ClassVar[str] = ""
    """Explanation of the reported objective, in sentences, if it may rise while the map gets better."""
    no_new_rows: ClassVar[str] = ""
    """Clause on why maps take no new rows, if a method without :meth:`transform` has a special reason."""
    draws_from_prior: ClassVar[bool] = False
    """Whether the method passes an earlier map to its embedder."""
    no_novelty: ClassVar[str] = "with these settings, the run keeps nothing to compare new rows with"
    """Sentence on why novelty is unknown, without a full stop, for runs whose :meth:`novelty` is None."""

    @classmethod
    def offers(
        cls,
        what: Literal[
            "central",
            "public_rows",
            "transform",
            "transform_alone",
            "predict",
            "redraw",
            "redraw_layout",
            "rehearse",
            "survey_noise",
        ],
    ) -> bool:
        """Return whether the method overrides an optional hook."""
        return getattr(cls, what) is not getattr(MethodSettings, what)

    def check(self, rows: int, features: int) -> None:
        """Raise ScenarioError or DataError if the settings do not fit this many rows, before any work is done."""

    @property
    def rounds_asked(self) -> int:
        """Number of rounds with requests to clients; by default the key ``rounds``."""
        return int(getattr(self, "rounds", 0))

    @property
    def drawn_by(self) -> Embedder | None:
        """Embedder of the map at the server: the key ``embedder``, or settings that are an embedder.

        None without one.
        """
        named: Embedder | None = getattr(self, "embedder", None)
        return self if named is None and isinstance(self, Embedder) else named

    def why_no_prior(self) -> str | None:
        """Return a clause on why a map under these settings cannot start from an earlier one; None if it can."""
        if isinstance(self.drawn_by, StartsFromPlaces) and self.draws_from_prior:
            return None
        if self.draws_from_prior:
            kind = getattr(self.drawn_by, "kind", None)
            return f"the embedder {kind!r} starts from no places: choose tsne or umap"
        return (
            f"maps of method.kind {self.kind!r} have no start that an earlier map could give; those of fed-tsne,"
            " fed-umap, fed-spectral, sense, fedne, fedavg-ne, fedprox-ne, landmark-ne and global-ne do"
        )

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in distances, as a clause with what to do; None if it can."""
        if self.public_file is None:
            return None
        return "the labels of a file of public rows are not read: let the method set rows of the table apart"

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return why rows must be dense, as a clause with what to do; None if :class:`SparseRows` stay sparse.

        ``rows`` is the number of rows of the table, or 0 if sites read their own files, whose ``features`` are not
        known before. ``pooled`` is whether the pooled-data map is drawn too.
        """
        return f"method.kind {self.kind!r} takes dense rows: {OTHER_METHOD}"

    # What the evaluation compares the map with.

    def truth(self, rows: FloatArray) -> Geometry | None:
        """Return the true distances between pooled, scaled rows; by default None: their Euclidean distances."""
        return None

    def mapped(self, embedding: FloatArray) -> Geometry | None:
        """Return the distances on a map; by default None: Euclidean distances of its positions."""
        return None

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the pooled-data map, and clusters if the method has any, which no federation would allow.

        It is the reference for every federated map. ``model`` is that of the federated run. By default
        ``drawn_by`` draws it.
        """
        if self.drawn_by is None:
            raise NotImplementedError(f"method.kind {self.kind!r} has no central map: override central")
        dimensions = getattr(self, "dimensions", 2)  # a field of the methods that draw maps of 3 dimensions
        embedding = draw_map(
            points_of(rows), rows, self.drawn_by, dimensions=dimensions, seed=seed, journal=journal
        ).embedding
        return Pooled(
            embedding, place=lambda new: placed_by_rows(pooled_references(model, embedding, rows), new)
        )

    def redraw(
        self, snapshot: Mapping[str, FloatArray], parts: Sequence[FloatArray], seed: int, journal: Journal
    ) -> Outcome:
        """Return the outcome that the run would have had if it had ended after some round (optional hook).

        ``snapshot`` is one of :attr:`raydr.methods.outcome.Outcome.snapshots`, ``parts`` each client's scaled
        rows.
        """
        raise NotImplementedError(f"method.kind {self.kind!r} keeps no snapshots")

    def redraw_layout(
        self, model: Mapping[str, FloatArray], parts: Sequence[FloatArray], seed: int
    ) -> FloatArray:
        """Return the map (rows in client order) of a finished run with another seed of its layout (optional hook).

        No client sends anything again: methods offer this if their messages cost epsilon, and the layout is computed
        from what they send. ``model`` is the run's, ``parts`` each client's scaled rows. The run's seed gives the run's
        map.
        """
        raise NotImplementedError(f"method.kind {self.kind!r} draws its layout from a repetition of the run")

    # Rows that do not belong to clients.

    def public_rows(self, rows: int, mapped: int | None, features: int, clients: int | None) -> int:
        """Return the number of rows to set apart for the server; see :mod:`raydr.methods.sense.anchors`."""
        return 0

    def needs_table(self) -> str | None:
        """Return a clause on why the method needs one table; None if sites may read their own files."""
        return None

    @property
    def public_file(self) -> str | None:
        """Path of a file of public rows."""
        return None

    # What leaves a client, and under which noise.

    def releases(self, noise: Mechanism) -> float:
        """Return the number of answers that noise covers and that share an epsilon.

        An answer that spends less counts as a fraction; 0 if no such answers are uploaded.
        """
        return 1

    def why_no_budget(self, noise: Mechanism) -> str | None:
        """Return a clause on why a mechanism does not work with these settings; None if it does."""
        return None

    def posts(self) -> str | None:
        """Return a clause on record data that leave their client with noise on data at most; None for no such data."""
        return None

    def why_no_key(self) -> str | None:
        """Return a clause on why an isometry key does not work with these settings; None if it does.

        A key works if all results depend on distances alone, or rotate with the rows.
        """
        return "it is not known how this method treats rotated rows: leave it out"

    @property
    def surveys_columns(self) -> bool:
        """Whether a noisy survey of raw columns prepares the rows, instead of exact sums (:meth:`survey_noise`)."""
        return False

    def survey_noise(self, budget: Budget, clients: int, columns: int) -> SurveyNoise:
        """Return the noise of one of the two releases of a survey, on this many columns (optional hook)."""
        raise NotImplementedError(f"method.kind {self.kind!r} surveys no columns")

    @property
    def is_euclidean(self) -> bool:
        """Whether distances in the data and on the map are Euclidean: :meth:`truth` and :meth:`mapped` return None."""
        return True

    @property
    def keeps_places(self) -> bool:
        """Whether clients keep the positions of their records; by default by the key ``publish``."""
        return getattr(self, "publish", "server") == "local"

    # New rows on a finished map.

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, 2 or 3) of new rows (rows, features), scaled as in the run (optional hook)."""
        raise NotImplementedError(f"maps of method.kind {self.kind!r} take no new rows")

    def transform_alone(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, 2) of rows (rows, features), scaled as in the run, on the map of one client.

        Optional hook of methods whose clients draw a map each; ``model`` is one of :attr:`Outcome.own_models`.
        """
        raise NotImplementedError(f"method.kind {self.kind!r} draws no map for each client")

    def predict(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Int64Array:
        """Return clusters (rows,) of new rows (rows, features), scaled as in the run (optional hook)."""
        raise NotImplementedError(f"method.kind {self.kind!r} makes no clusters")

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return the p-value (rows,) of new rows, scaled as in the run, for being like the mapped rows.

        None if the run kept nothing to compare with (:mod:`raydr.methods.novelty`).
        """
        return None

    def admit(self, federation: Federation, model: Mapping[str, FloatArray]) -> Placed | None:
        """Return positions of the rows of a site that joins later, over a federation of that site alone.

        The site sends the same data as the run's clients, and the map does not change. None if clients send
        positions alone (:mod:`raydr.methods.joining`).
        """
        return None

    def why_no_new_rows(self) -> str | None:
        """Return a clause on why maps under these settings take no new rows; None if they do."""
        if self.offers("transform"):
            return None
        able = ", ".join(name for name, method in METHODS.items() if method.settings.offers("transform"))
        because = f" ({self.no_new_rows})" if self.no_new_rows else ""
        return (
            f"maps of method.kind {self.kind!r} take no new rows{because}; maps of these methods do: {able}"
        )

    # Information for `raydr plan`.

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask clients what the server part asks them, without its arithmetic; otherwise the messages are unknown."""

    def coordinate_bytes(self, rows: int, features: int) -> int:
        """Return the bytes of all rows' coordinates at the server before it draws them: two copies of each feature."""
        return 2 * 8 * rows * features

    def server_bytes(self, rows: int, features: int, clients: int) -> int:
        """Return the server's peak bytes besides messages, coordinates and the map's graph."""
        return 0

    def central_operations(self, rows: int, features: int) -> float:
        """Return the floating-point operations of the pooled-data map, if no embedder draws it."""
        return 0.0


Serve = TypeVar("Serve", bound=Callable[[Federation, Any], Outcome])


@dataclass(frozen=True)
class Method:
    """A federated method: its settings and its server part, which talks to clients by messages.

    Attributes
    ----------
    settings : type of MethodSettings
        Its settings in a scenario, with its hooks.
    serve : callable
        Its server part.
    title : str
        Its name in the paper.
    """

    settings: type[MethodSettings]
    serve: Callable[[Federation, Any], Outcome]
    title: str

    @property
    def summary(self) -> str:
        """One-line description."""
        return summary(self.settings)


METHODS: Registry[Method] = Registry("methods", "raydr.methods", first=("landmarks", "sense"))
"""All methods by ``method.kind``."""


def method(settings: type[MethodSettings], title: str) -> Callable[[Serve], Serve]:
    """Register a function as the server part of a method.

    Parameters
    ----------
    settings : type of MethodSettings
        Its settings in a scenario. The default of its ``kind`` is the method's name; lists show the first
        line of its docstring.
    title : str
        Its name in the paper.

    Examples
    --------
    >>> from typing import Literal
    >>> class Nothing(MethodSettings):
    ...     '''Sends nothing and maps nothing.'''
    ...     kind: Literal["nothing"] = "nothing"
    >>> @method(Nothing, "Nothing")  # doctest: +SKIP
    ... def serve(federation, settings): ...
    """

    def register(serve: Serve) -> Serve:
        METHODS.add(kind_of(settings), Method(settings, serve, title), settings.__module__)
        return serve

    return register
