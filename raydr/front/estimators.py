"""scikit-learn's face of raydr: an estimator for each method, made of its settings.

``raydr.FedTSNE(perplexity=10).fit_transform(X, sites=hospital)`` runs the scenario that says the same, to the same
bits. A method that is added to raydr, here or by another package, has its estimator by that alone: the name is that of
its settings, and every setting is a parameter. What a fit leaves is a run folder, which holds no row.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, Signature
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from weakref import finalize

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from raydr.arrays import FloatArray, Int64Array
from raydr.data import IN_MEMORY, Table, in_memory
from raydr.errors import DataError, ScenarioError
from raydr.front.api import Result
from raydr.methods import METHODS
from raydr.methods.method import Method
from raydr.records import PICTURE, REPORT
from raydr.registry import ExtensionError
from raydr.settings import Settings

_CLIENTS, _LEAST_ROWS = 10, 5
"""Clients that rows are dealt to where nobody says whose they are, and how many rows each has of them at least."""
_COMMON: Mapping[str, tuple[Any, str, str]] = types.MappingProxyType(
    {
        "n_clients": (
            None,
            "int, optional",
            f"clients among whom rows are dealt at random where no sites are given; default: {_CLIENTS}, or so many"
            f" that each has {_LEAST_ROWS} rows",
        ),
        "scale": ("none", '{"none", "standard", "unit", "minmax"}', "federated scaling of the features"),
        "label": (
            None,
            "str, optional",
            "column of a data frame, or of an AnnData's obs, that names classes: for colours and metrics, and no"
            " feature",
        ),
        "metrics": ("default", '"default" or sequence of str', "metrics of the map: ``raydr list metrics``"),
        "privacy": (None, "mapping, optional", "the section ``privacy`` of a scenario: noise, secure sums"),
        "scenario": (
            None,
            "mapping, optional",
            "any other keys of a scenario by their dotted names, such as ``clients.participation``",
        ),
        "federation": (
            "inline",
            '{"inline", "ray"}',
            "this process alone, or Ray's actors, to the same bits",
        ),
        "out": (
            None,
            "str or Path, optional",
            "folder to keep the run in, with its report; must not exist, or be empty; default: a temporary one that"
            " goes with the estimator",
        ),
        "random_state": (
            0,
            "int, RandomState instance or None",
            "seed of every draw but that of keys and noise; None: another in each fit",
        ),
    }
)
"""What estimators have beside their method's settings: default, type and meaning."""


class FederatedMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What all estimators have in common; see those that :func:`estimator_names` lists."""

    _kind: str
    _parameters: tuple[str, ...]

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> FederatedMap:
        """Run the federation on rows of this process, and keep its map.

        Parameters
        ----------
        X : (rows, features) array, DataFrame or AnnData, or a list of them
            Finite numbers. A list holds the table of one site each, all with the same features.
        y : (rows,) array, optional
            Classes, for colours and metrics alone; no method sees them. Numbers that are no classes are left aside.
        sites : (rows,) array, or str, optional
            Whose each row is, or the column that says so. Without it, the tables of a list are the sites, and the rows
            of one table are dealt to ``n_clients`` at random.

        Returns
        -------
        self : estimator

        Raises
        ------
        raydr.errors.ScenarioError, raydr.errors.DataError
            For parameters or rows that cannot be used; both are ValueErrors.
        raydr.errors.OutputError
            If ``out`` cannot be written.
        raydr.errors.RunError
            If the run started and failed.
        """
        from raydr.scenarios.reading import read
        from raydr.scenarios.runner import run

        given = _gathered(X, y, sites, self.label)
        table = self._table(given)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        scenario = read(self._content(table, int(seed)), self.scenario)
        folder = _temporary() if self.out is None else Path(self.out).expanduser().absolute()
        result = FittedRun(folder, temporary=self.out is None)
        run(scenario, out=folder, table=table, report=self.out is not None)
        self._run = result
        self.seed_ = int(seed)
        self.embedding_ = result.embedding
        self.metrics_, self.ledger_, self.privacy_ = result.metrics, result.ledger, result.privacy
        columns = result.to_frame("pyarrow")
        self.clients_ = np.array(columns["client"].to_pylist(), dtype=np.str_)
        if "cluster" in columns.column_names:
            self.labels_ = columns["cluster"].to_numpy()
        return self

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> FloatArray:
        """As :meth:`fit`, and return the map, (rows, 2 or 3)."""
        places: FloatArray = self.fit(X, y, sites=sites).embedding_
        return places

    @property
    def report_(self) -> Path:
        """The page of the run, made now if it was not; it lasts as long as the estimator, or where ``out`` says."""
        check_is_fitted(self)
        return self._run.report

    @property
    def result_(self) -> Result:
        """The run itself, as :func:`raydr.run` gives it."""
        check_is_fitted(self)
        return self._run

    def to_frame(self, library: Any = None) -> Any:
        """The map as a data frame: see :meth:`raydr.Result.to_frame`."""
        return self.result_.to_frame(library)

    def to_anndata(self, onto: Any = None) -> Any:
        """The map as AnnData: see :meth:`raydr.Result.to_anndata`."""
        return self.result_.to_anndata(onto)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _repr_html_(self) -> str:
        shown: str = estimator_html_repr(self)
        return shown + self._run._repr_html_() if self.__sklearn_is_fitted__() else shown

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_run")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # a map is as precise as its method draws it
        drawn = METHODS[self._kind].noise_of_its_own or bool(self.privacy)
        # Keys and noise come from the system, unless a file has the secret that they follow from.
        tags.non_deterministic = drawn and not (self.privacy or {}).get("secret")
        return tags

    def _table(self, given: _Given) -> Table:
        """Rows of all sites one below the other, checked as scikit-learn does it and as raydr does it."""
        least = 2 if len(given.tables) == 1 else 1
        rows = [
            validate_data(self, table, reset=not place, ensure_min_samples=least, dtype="numeric")
            for place, table in enumerate(given.tables)
        ]
        arrays = {"X": np.concatenate(rows) if len(rows) > 1 else rows[0]} | given.keys | given.names
        check_consistent_length(arrays["X"], *given.keys.values())
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = np.asarray(self.feature_names_in_, np.str_)
        return in_memory(arrays)

    def _content(self, table: Table, seed: int) -> dict[str, Any]:
        """The scenario that the parameters say."""
        settings = METHODS[self._kind].settings.model_fields
        method = {name: _setting(getattr(self, name), settings[name]) for name in self._parameters}
        if table.client_keys is None:
            most = max(1, min(_CLIENTS, len(table.rows) // _LEAST_ROWS))
            clients: dict[str, Any] = {"count": most if self.n_clients is None else self.n_clients}
        elif self.n_clients is None:
            clients = {"partition": {"kind": "by-column", "column": "site"}}
        else:
            raise ScenarioError(
                f"n_clients is {self.n_clients}, and sites say whose each row is: leave one of them out."
            )
        return {
            "name": self._kind,
            "seed": seed,
            # All rows are to be mapped: none is set apart for the server.
            "data": {"source": IN_MEMORY, "rows": len(table.rows), "scale": self.scale},
            "clients": clients,
            "method": {"kind": self._kind}
            | {name: value for name, value in method.items() if value is not _UNSAID},
            "metrics": self.metrics if isinstance(self.metrics, str) else list(self.metrics),
            "privacy": dict(self.privacy or {}),
            # Nobody can go on with a run whose rows are gone.
            "runtime": {"federation": self.federation, "checkpoint_every": 0},
        }


class PlacingMap(FederatedMap):
    """One whose map takes new rows."""

    def transform(self, X: Any) -> FloatArray:
        """Place new rows on the map, by what the run left behind: nobody is asked, and nothing leaves the caller.

        Rows that were mapped are placed anew, near where :attr:`embedding_` has them.

        Parameters
        ----------
        X : (rows, features) array, DataFrame or AnnData, or a list of them
            With the features of :meth:`fit`.

        Returns
        -------
        places : (rows, 2 or 3) float

        Raises
        ------
        raydr.errors.ScenarioError
            If maps under these settings take no new rows.
        raydr.errors.DataError
            If a row lies too far off to have a place.
        """
        from raydr.scenarios.transforming import place

        table = self._new(X)
        return place(self._run.folder, table)

    def _new(self, X: Any) -> Table:
        """New rows with the features of :meth:`fit`."""
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        tables = [
            validate_data(self, _features(table, known), reset=False, dtype="numeric")
            for table in _tables(X)[0]
        ]
        return in_memory({"X": np.concatenate(tables)}, for_map=False)


class PredictingMap(PlacingMap):
    """One that tells the clusters of new rows too."""

    def predict(self, X: Any) -> Int64Array:
        """Cluster of each new row, (rows,) int64: that of most of the mapped records near it.

        ``X`` and what is raised are as of :meth:`transform`.
        """
        from raydr.scenarios.transforming import predict

        table = self._new(X)
        return predict(self._run.folder, table)


# --- the run that an estimator keeps ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedRun(Result):
    """The run of an estimator, whose folder holds no row; pickled with its files, and then in a temporary folder.

    Attributes
    ----------
    temporary : bool
        Whether the folder, alone in another, goes when this goes.
    """

    temporary: bool = False

    def __post_init__(self) -> None:
        if self.temporary:
            finalize(self, _remove, self.folder.parent, os.getpid())

    @property
    def report(self) -> Path:
        """The report's page, made now if it was not."""
        from raydr.report import write_report

        page = super().report
        return page if page.exists() else write_report(self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        content = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in files
            if path.name not in (REPORT, PICTURE)
        }
        return _restored, (content,)


def _temporary() -> Path:
    """A place for a run, in a folder that nobody else can read."""
    return Path(tempfile.mkdtemp(prefix="raydr-fit-")) / "run"


def _restored(files: Mapping[str, bytes]) -> FittedRun:
    folder = _temporary()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return FittedRun(folder, temporary=True)


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, in the process that made it: its forks leave it alone."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


# --- data in memory ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """Tables of features as they were given, one or one for each site, and what is known of all their rows."""

    tables: list[Any]
    keys: dict[str, NDArray[Any]]
    names: dict[str, NDArray[Any]]


def _gathered(X: Any, y: Any, sites: Any, label: str | None) -> _Given:
    """Tell features from the columns that name rows."""
    tables, several = _tables(X)
    keys: dict[str, NDArray[Any]] = {}
    if sites is not None and several:
        raise DataError("X is a list of tables, which are the sites: leave sites out, or give one table.")
    if y is not None and label is not None:
        raise DataError(f"y and the column {label!r} both name classes: give one of the two.")
    if label is not None:
        keys["y"] = np.concatenate([_key(_column(table, label, "label")) for table in tables])
    elif y is not None:
        parts = y if several and isinstance(y, list | tuple) and np.ndim(y[0]) == 1 else [y]
        classes = np.concatenate([np.asarray(part) for part in parts])
        if classes.dtype.kind not in "biuf" or type_of_target(classes) in ("binary", "multiclass"):
            keys["y"] = _key(classes)
    names: dict[str, NDArray[Any]] = {}
    if several:
        names["client_names"] = np.array([f"site-{place}" for place in range(len(tables))])
        keys["client"] = np.repeat(np.arange(len(tables)), [table.shape[0] for table in tables])
    elif sites is not None:
        keys["client"] = _key(_column(tables[0], sites, "sites") if isinstance(sites, str) else sites)
    ids = _names_of_rows(tables)
    if ids is not None:
        keys["id"] = ids
    dropped = [name for name in (label, sites) if isinstance(name, str)]
    return _Given([_without(table, dropped) for table in tables], keys, names)


def _tables(X: Any) -> tuple[list[Any], bool]:
    """The tables of X, and whether it is a list of them."""
    several = isinstance(X, list | tuple) and len(X) > 0 and len(getattr(X[0], "shape", ())) == 2
    return (list(X) if several else [X]), several


def _is_anndata(table: Any) -> bool:
    return hasattr(table, "obs") and hasattr(table, "var_names")


def _obs(table: Any) -> Any:
    """What has the rows' columns: of AnnData, obs."""
    return table.obs if _is_anndata(table) else table


def _column(table: Any, name: str, knob: str) -> Any:
    columns = list(getattr(_obs(table), "columns", ()))
    if name not in columns:
        raise DataError(f"{knob} is {name!r}, and X has no such column; its columns are {columns[:12]}.")
    return _obs(table)[name]


def _key(values: Any) -> NDArray[Any]:
    """A column of names as numbers or text, empty where a cell is."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"Classes and sites need one value for each row, and these have shape {array.shape}.")
    if array.dtype.kind in "biufUSmM":
        return array
    return np.array(["" if repr(cell) in _EMPTY else str(cell) for cell in array.tolist()], np.str_)


_EMPTY = ("None", "nan", "<NA>", "NaT")


def _without(table: Any, names: Sequence[str]) -> Any:
    """The features of a table."""
    if _is_anndata(table):
        return table.to_df()
    return table.drop(names) if _is_polars(table) else table.drop(columns=names) if names else table


def _features(table: Any, known: NDArray[Any] | None) -> Any:
    """The features of a table that may have other columns too, by their names where it has any."""
    table = table.to_df() if _is_anndata(table) else table
    there = set(getattr(table, "columns", ()))
    return table[list(known)] if known is not None and there.issuperset(known) else table


def _is_polars(table: Any) -> bool:
    return type(table).__module__.partition(".")[0] == "polars"


def _names_of_rows(tables: Sequence[Any]) -> NDArray[Any] | None:
    """Names of all rows, where all tables name them and no two are alike."""
    indices = [getattr(_obs(table), "index", None) for table in tables]
    if not all(hasattr(index, "is_unique") for index in indices):
        return None
    names = [_key(np.asarray(index)) for index in indices]
    if len({array.dtype.kind for array in names}) > 1:
        return None
    ids = np.concatenate(names)
    return ids if len(np.unique(ids)) == len(ids) else None


# --- classes made of settings -----------------------------------------------------------------------------------------

_UNSAID = object()


def estimator_names() -> dict[str, str]:
    """Name of each method's estimator, with its ``method.kind``."""
    return {_name(method): kind for kind, method in METHODS.items()}


def _name(method: Method) -> str:
    clusters = "clusters" in method.settings.model_fields
    return method.settings.__name__ + "Clustering" * clusters


def __getattr__(name: str) -> type[FederatedMap]:
    kind = estimator_names().get(name) if name[:1].isupper() else None
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _estimator(kind)


@cache
def _estimator(kind: str) -> type[FederatedMap]:
    """The estimator of a method."""
    method = METHODS[kind]
    fields = {name: field for name, field in method.settings.model_fields.items() if name != "kind"}
    both = sorted(fields.keys() & _COMMON.keys())
    if both:
        raise ExtensionError(
            f"The method {kind!r} has settings {both}, which every estimator has: rename them."
        )
    defaults = {name: _default(field) for name, field in fields.items()} | {
        name: default for name, (default, _, _) in _COMMON.items()
    }
    signature = Signature(
        [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    )
    bases: tuple[type, ...] = (FederatedMap if method.transform is None else PlacingMap,)
    if method.predict is not None:
        bases = (PredictingMap,)
    if "clusters" in fields:
        bases = (ClusterMixin, *bases)
    members = {
        "__init__": _initialiser(signature),
        "__doc__": _documented(method, fields),
        "__module__": __name__,
        "_kind": kind,
        "_parameters": tuple(fields),
    }
    made = type(_name(method), bases, members)
    if method.transform is None:
        made.transform = property(partial(_no_transform, method))  # type: ignore[attr-defined]  # which sklearn must not wrap
    return made


def _no_transform(method: Method, estimator: FederatedMap) -> None:
    reason = method.unplaceable(method.settings.model_construct(kind=estimator._kind))
    because = "" if reason is None else f": {reason}"
    raise AttributeError(
        f"{type(estimator).__name__} has no transform, for its maps take no new rows{because}."
    )


def _initialiser(signature: Signature) -> Callable[..., None]:
    def initialise(self: Any, **parameters: Any) -> None:
        bound = signature.bind(self, **parameters)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    initialise.__signature__ = signature  # type: ignore[attr-defined]
    return initialise


def _default(field: FieldInfo) -> Any:
    """The default of a setting in plain values: of one with a kind that kind, of other sections None."""
    if field.is_required():
        return Parameter.empty
    value = field.get_default(call_default_factory=True)
    if not isinstance(value, Settings):
        return value
    kind = getattr(value, "kind", None)
    return kind if kind is not None and value == type(value)() else None


def _setting(value: Any, field: FieldInfo) -> Any:
    """A parameter as a scenario says it."""
    if not isinstance(field.default, Settings):
        return value.item() if isinstance(value, np.generic) else value
    if value is None:
        return _UNSAID
    return {"kind": value} if isinstance(value, str) else value


def _documented(method: Method, fields: Mapping[str, FieldInfo]) -> str:
    """A class's docstring: the method, its settings, and what a fit leaves."""
    lines = [
        method.summary,
        "",
        f"The method {method.title}, with every setting as a parameter; arguments go by keyword alone.",
        "",
        "Parameters",
        "----------",
    ]
    for name, field in fields.items():
        default = _default(field)
        also = "" if default is Parameter.empty else f", default={default!r}"
        lines += _entry(name, _spelt(field.annotation, field.metadata) + also, field.description or "")
    for name, (default, kind, meaning) in _COMMON.items():
        lines += _entry(name, f"{kind}, default={default!r}", meaning)
    lines += ["", "Attributes", "----------"]
    for name, kind, meaning in _ATTRIBUTES:
        lines += _entry(name, kind, meaning)
    if "clusters" in fields:
        lines += _entry("labels_", "(rows,) int64", "each row's cluster")
    return "\n".join(lines) + "\n"


_ATTRIBUTES = (
    (
        "embedding_",
        "(rows, 2 or 3) float",
        "the map, in the order of the rows; a list's tables follow each other",
    ),
    ("metrics_", "dict", 'by "federated" and, where asked for, "central", then by name; not computed: None'),
    ("ledger_", "list of dict", "every kind of message: see :class:`raydr.privacy.ledger.Entry`"),
    ("privacy_", "dict", "what they cost: see :class:`raydr.privacy.statement.Statement`"),
    ("clients_", "(rows,) str", "name of each row's client"),
    ("seed_", "int", "of every draw but that of keys and noise"),
    ("report_", "Path", "the run's page"),
    ("result_", "raydr.Result", "the run"),
    ("n_features_in_", "int", "number of features"),
    ("feature_names_in_", "(features,) object", "their names, where the rows had any"),
)


def _entry(name: str, kind: str, meaning: str) -> Iterable[str]:
    return (
        f"{name} : {kind}",
        *fill(meaning, 100, initial_indent="    ", subsequent_indent="    ").split("\n"),
    )


def _spelt(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """A type in numpydoc's words, with its limits."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _spelt(inner, more)
    if get_origin(annotation) in (Union, types.UnionType):
        members = get_args(annotation)
        words = dict.fromkeys(_spelt(member, metadata) for member in members if member is not type(None))
        return " or ".join([*words, *["None"] * (type(None) in members)])
    if get_origin(annotation) is Literal:
        return "{" + ", ".join(map(repr, get_args(annotation))) + "}"
    if get_origin(annotation) is tuple:
        return f"tuple of {_spelt(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "str or mapping"
    return getattr(annotation, "__name__", str(annotation)) + "".join(_limits(metadata))


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for limit in metadata:
        match limit:
            case Ge(ge=bound):
                yield f" >= {bound}"
            case Gt(gt=bound):
                yield f" > {bound}"
            case Le(le=bound):
                yield f" <= {bound}"
            case Lt(lt=bound):
                yield f" < {bound}"
