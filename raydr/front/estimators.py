"""scikit-learn estimators: one for each method, made from its settings.

``raydr.FedTSNE(perplexity=10).fit_transform(X, sites=hospital)`` runs the corresponding scenario, with identical
results. Every method, also of another package, has an estimator: its name is that of the settings class, and each
setting is a parameter. A fit writes a run folder, which contains no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.fields import FieldInfo
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from raydr.arrays import FloatArray, Int64Array
from raydr.data import IN_MEMORY, Layout, Table, in_frame, in_memory
from raydr.data.survey.codebook import Codebook, codebook_of
from raydr.errors import DataError, ScenarioError, did_you_mean
from raydr.front.fitted import FittedRun, temporary_place
from raydr.front.parameters import (
    CLIENTS,
    COMMON,
    LEAST_ROWS,
    MEANT,
    OTHER_NAMES,
    UNSAID,
    as_setting,
    default_of,
    documented,
    protected,
)
from raydr.front.result import Result
from raydr.front.table_inputs import (
    Given,
    as_arrow,
    features_of,
    gathered,
    is_frame,
    owners_of,
    tables_of,
)
from raydr.methods import METHODS
from raydr.methods.method import Method
from raydr.registry import ExtensionError
from raydr.sparse_rows import SparseRows, is_sparse, stacked
from raydr.statistics.dissimilarity import AS_READ, BY_COLUMN


class FederatedMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators; :func:`estimator_names` lists them."""

    _kind: str
    _parameters: tuple[str, ...]
    _codebook: Codebook | None = None
    _layout: Layout | None = None
    _fills = False

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> FederatedMap:
        """Run the federation on rows in memory and keep its map.

        Parameters
        ----------
        X : (rows, features) array, sparse matrix, DataFrame, pyarrow.Table or AnnData, or a list of them
            Finite numbers. A sparse matrix stays sparse if the method and the scaling permit it (docs/sparse.md). The
            columns of a DataFrame, and of an array with words, are read as by ``raydr map``. Missing values are filled
            in by the median. A list has one table per site, all with the same features.
        y : (rows,) array, optional
            Classes, for colours and metrics. Some may be missing: None or NaN, while -1 is a class. Only with
            ``target_weight`` above 0, methods see them, and numbers that are not classes are not ignored.
        sites : (rows,) array, or str, optional
            Site of each row, or the column that names it. Default: the tables of a list are the sites, and the rows of
            one table are dealt to ``n_clients`` at random.

        Returns
        -------
        self : estimator

        Raises
        ------
        raydr.errors.ScenarioError, raydr.errors.DataError
            If parameters or rows cannot be used; both are ValueErrors.
        raydr.errors.OutputError
            If ``out`` cannot be written.
        raydr.errors.RunError
            If the run started and failed.
        """
        from raydr.front.progress_bars import heard_on_terminal
        from raydr.scenarios.runner import run
        from raydr.scenarios.schema.reading import read

        given = gathered(X, y, sites, self.label, self.time, steers=bool(self.target_weight))
        table = self._table(given)
        self._fills = table.gaps
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        scenario = read(self._content(table, int(seed)), self.scenario)
        if scenario.clients.join_spellings and not self.join_spellings:
            raise ScenarioError(
                "clients.join_spellings is a parameter of estimators: set join_spellings=True."
            )
        folder = temporary_place() if self.out is None else Path(self.out).expanduser().absolute()
        result = FittedRun(folder, temporary=self.out is None)
        with heard_on_terminal(quiet=not self.verbose) as listener:
            run(scenario, out=folder, table=table, report=self.out is not None, listener=listener)
        self._run = result
        self.seed_ = int(seed)
        self.embedding_ = result.embedding
        self.metrics_, self.ledger_, self.privacy_ = result.metrics, result.ledger, result.privacy
        self.site_metrics_, self.clients_ = result.site_metrics, result.sites
        self.islands_ = result.islands
        if result.clusters is not None:
            self.labels_ = result.clusters
        return self

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> FloatArray:
        """Call :meth:`fit` and return the map, (rows, 2 or 3)."""
        places: FloatArray = self.fit(X, y, sites=sites).embedding_
        return places

    @property
    def report_(self) -> Path:
        """Path of the run's report, written on first use; it is deleted with the estimator unless ``out`` is given."""
        check_is_fitted(self)
        return self._run.report

    @property
    def result_(self) -> Result:
        """The run, as :func:`raydr.run` returns it."""
        check_is_fitted(self)
        return self._run

    def to_frame(self, library: Any = None) -> Any:
        """Return the map as a data frame: see :meth:`raydr.Result.to_frame`."""
        return self.result_.to_frame(library)

    def to_anndata(self, onto: Any = None) -> Any:
        """Return the map as AnnData: see :meth:`raydr.Result.to_anndata`."""
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
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # the method decides the dtype of the map
        drawn = METHODS[self._kind].settings.noise_of_its_own or bool(self.privacy)
        # Keys and noise come from the system's random source, unless privacy.secret names a file.
        tags.non_deterministic = drawn and not (self.privacy or {}).get("secret")
        return tags

    def _table(self, given: Given) -> Table:
        """Return the rows of all sites in one table, checked by scikit-learn and by raydr."""
        self._layout = None
        self._codebook = book = None if self.codebook is None else codebook_of(self.codebook)
        if book is not None and not given.surveyed:
            raise DataError("codebook names columns, but X has no column names: give a data frame.")
        if given.surveyed:
            for place, each in enumerate(given.tables):
                validate_data(self, each, reset=not place, skip_check_array=True)
            frame = as_arrow(given.tables)
            check_consistent_length(frame, *given.keys.values())
            self._names = tuple(frame.column_names)
            found = in_frame(
                frame,
                given.keys | given.names,
                codebook=book,
                join_spellings=self.join_spellings,
                cells=self._surveys,
            )
            self._layout = found.layout
            return found
        least = 2 if len(given.tables) == 1 else 1
        rows = [
            _checked(self, table, reset=not place, ensure_min_samples=least)
            for place, table in enumerate(given.tables)
        ]
        arrays = {"X": stacked(rows) if len(rows) > 1 else rows[0]} | given.keys | given.names
        check_consistent_length(arrays["X"], *given.keys.values())
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = np.asarray(self.feature_names_in_, np.str_)
        return in_memory(arrays, join_spellings=self.join_spellings, cells=self._surveys)

    @property
    def _surveys(self) -> bool:
        """Whether a noisy survey prepares the columns: the method can, and nothing states the extent of rows."""
        settings = METHODS[self._kind].settings
        return settings.offers("survey_noise") and self.bounds is None and self.clip is None

    def set_params(self, **params: Any) -> FederatedMap:
        """Set parameters, as in scikit-learn.

        Raises
        ------
        ValueError
            If there is no such parameter; the message has the nearest one.
        """
        for name in params.keys() - self.get_params().keys():
            if "__" not in name:
                raise ValueError(
                    f"Invalid parameter {name!r}. {_unknown(type(self), name, self.get_params())}"
                )
        set_here: FederatedMap = super().set_params(**params)
        return set_here

    def _given(self, name: str, field: FieldInfo) -> Any:
        """Return the value of a setting, under its own or another name."""
        value = getattr(self, name)
        for other, ours in OTHER_NAMES.items():
            also = getattr(self, other) if ours == name else None
            if also is not None and also != value:
                if value != default_of(field):
                    raise ScenarioError(
                        f"{other} is {also} and {name} is {value}, but they are two names of one setting: leave one"
                        " of them out."
                    )
                value = also
        return value

    def _scaling(self) -> str:
        """Return the scaling: by default that of ``raydr map`` for data frames, and none for arrays."""
        if self.scale is not None:
            return str(self.scale)
        as_read = self._layout is None or self._surveys or self.metric in (*AS_READ, *BY_COLUMN)
        return "none" if as_read else "standard"

    def _content(self, table: Table, seed: int) -> dict[str, Any]:
        """Return the scenario of the parameters."""
        settings = METHODS[self._kind].settings.model_fields
        method = {
            name: as_setting(self._given(name, settings[name]), settings[name]) for name in self._parameters
        }
        if table.client_keys is None:
            most = max(1, min(CLIENTS, len(table.rows) // LEAST_ROWS))
            clients: dict[str, Any] = {"count": most if self.n_clients is None else self.n_clients}
        elif self.n_clients is None:
            clients = {"partition": {"kind": "by-column", "column": "site"}}
        else:
            raise ScenarioError(
                f"n_clients is {self.n_clients}, but sites already assigns each row to a client: leave one of them out."
            )
        privacy = dict(self.privacy or {})
        if self._surveys and self.privacy is None:
            count = clients.get("count") or len(table.client_names)
            more, privacy = protected(count)
            method |= more
        return {
            "name": self._kind,
            "seed": seed,
            # Map all rows: set none apart for the server.
            "data": {
                "source": IN_MEMORY,
                "rows": len(table.rows),
                "scale": self._scaling(),
                "metric": self.metric,
                "target_weight": self.target_weight,
                "time": self.time,
                "harmonize": self.harmonize
                if isinstance(self.harmonize, str)
                else dict(self.harmonize or {}) or None,
            }
            | ({"missing": "median"} if table.gaps and not self._surveys else {})
            | ({"categories": "one-hot"} if table.agreement is not None else {})
            | ({} if self._codebook is None else {"codebook": self._codebook.rows}),
            "clients": clients | ({"join_spellings": True} if self.join_spellings else {}),
            "method": {"kind": self._kind}
            | {name: value for name, value in method.items() if value is not UNSAID},
            "metrics": self.metrics if isinstance(self.metrics, str) else list(self.metrics),
            "privacy": privacy,
            # A run on rows in memory cannot be resumed.
            "runtime": {"federation": self.federation, "checkpoint_every": 0},
        }


class PlacingMap(FederatedMap):
    """Base class of estimators whose maps take new rows."""

    def transform(self, X: Any, *, sites: Any = None, return_novelty: bool = False) -> Any:
        """Place new rows on the map with the model of the run. No client takes part, and nothing leaves the caller.

        Rows that were mapped are placed again, close to their place in :attr:`embedding_`.

        Parameters
        ----------
        X : (rows, features) array, sparse matrix, DataFrame or AnnData, or a list of them
            New rows with the features of :meth:`fit`. Columns of a DataFrame are found by name, and others are
            ignored.
        sites : (rows,) array, or str, optional
            Site of each row, as in :meth:`fit`. Needed only if sites are harmonized.
        return_novelty : bool
            Whether to return p-values too. A row drawn like the mapped rows has p at most 0.05 in 5 of 100 cases.

        Returns
        -------
        places : (rows, 2 or 3) float
        novelty : (rows,) float
            Only with ``return_novelty``.

        Raises
        ------
        raydr.errors.ScenarioError
            If maps with these settings take no new rows. With ``return_novelty`` if the run kept nothing to compare
            with.
        raydr.errors.DataError
            If a mapped column is absent. If the values of a row are too large for a place on the map.
        """
        from raydr.scenarios.afterwards.transforming import place, placing_of

        table = self._new(X, sites)
        found = place(self._run.folder, table)
        if not return_novelty:
            return found.places
        if found.novelty is None:
            because = placing_of(self._run.folder, table.name).scenario.method.no_novelty
            raise ScenarioError(
                f"{type(self).__name__} cannot tell how novel rows are: {because}. docs/new-rows.md lists the methods"
                " that can. Leave return_novelty out."
            )
        return found.places, found.novelty

    def _new(self, X: Any, sites: Any) -> Table:
        """Return new rows with the features of :meth:`fit`, and their sites."""
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        if self._layout is not None:
            for table in tables_of(X)[0]:
                if not is_frame(table):  # then only the number of columns can be checked
                    validate_data(self, table, reset=False, dtype=None, ensure_all_finite=False)
            frame = as_arrow(tables_of(X)[0], self._names)
            owners = owners_of(X, sites)
            return in_frame(frame, owners, layout=self._layout, fills=self._fills, for_map=False)
        frames = [features_of(table, known) for table in tables_of(X)[0]]
        tables = [_checked(self, frame, reset=False) for frame in frames]
        arrays = {"X": stacked(tables)} | owners_of(X, sites)
        check_consistent_length(arrays["X"], *([arrays["client"]] if "client" in arrays else []))
        table = in_memory(arrays, fills=self._fills, for_map=False)
        return table.made_dense("new rows are placed by dense blocks")


def _checked(estimator: FederatedMap, table: Any, **checks: Any) -> Any:
    """Return a table as scikit-learn checks it; a sparse one in raydr's form."""
    cells = np.asarray(table) if isinstance(table, list | tuple) else table
    found = validate_data(
        estimator, cells, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan", **checks
    )
    return SparseRows.of(found) if is_sparse(found) else found


class PredictingMap(PlacingMap):
    """Base class of estimators that also assign new rows to clusters."""

    def predict(self, X: Any, *, sites: Any = None) -> Int64Array:
        """Return the cluster of each new row, (rows,) int64: the most frequent one among nearby mapped records.

        Parameters and errors are those of :meth:`transform`.
        """
        from raydr.scenarios.afterwards.transforming import predict

        table = self._new(X, sites)
        return predict(self._run.folder, table)


def estimator_names() -> dict[str, str]:
    """Return the ``method.kind`` of each estimator by name."""
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
    """Make the estimator class of a method."""
    method = METHODS[kind]
    fields = {name: field for name, field in method.settings.model_fields.items() if name != "kind"}
    both = sorted(fields.keys() & COMMON.keys())
    if both:
        raise ExtensionError(
            f"The method {kind!r} has settings {both}, which are parameters of every estimator: rename them."
        )
    defaults = {name: default_of(field) for name, field in fields.items()}
    defaults |= {other: None for other, name in OTHER_NAMES.items() if name in fields}
    defaults |= {name: default for name, (default, _, _) in COMMON.items()}
    signature = Signature(
        [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    )
    bases: tuple[type, ...] = (PlacingMap if method.settings.offers("transform") else FederatedMap,)
    if method.settings.offers("predict"):
        bases = (PredictingMap,)
    if "clusters" in fields:
        bases = (ClusterMixin, *bases)
    members = {
        "__init__": _initialiser(signature),
        "__doc__": documented(method, fields),
        "__module__": __name__,
        "_kind": kind,
        "_parameters": tuple(fields),
    }
    made = type(_name(method), bases, members)
    if not method.settings.offers("transform"):
        made.transform = property(partial(_no_transform, method))  # type: ignore[attr-defined]  # which sklearn must not wrap
    return made


def _no_transform(method: Method, estimator: FederatedMap) -> None:
    reason = method.settings.no_new_rows
    because = f": {reason}" if reason else ""
    raise AttributeError(
        f"{type(estimator).__name__} has no transform, because its maps take no new rows{because}."
    )


def _initialiser(signature: Signature) -> Callable[..., None]:
    def initialise(self: Any, **parameters: Any) -> None:
        for name in parameters.keys() - signature.parameters:
            raise TypeError(_unknown(type(self), name, signature.parameters))
        bound = signature.bind(self, **parameters)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    initialise.__signature__ = signature  # type: ignore[attr-defined]
    return initialise


def _unknown(estimator: type, name: str, known: Iterable[str]) -> str:
    """Return a sentence on a parameter that an estimator does not have, with the nearest that it has."""
    names = [each for each in known if each != "self"]
    if name == "n_components":
        return f"{estimator.__name__} has no parameter 'n_components': its maps have two dimensions."
    meant = MEANT.get(name)
    guess = f" (did you mean {meant}?)" if meant in names else did_you_mean(name, names)
    return f"{estimator.__name__} has no parameter {name!r}{guess}. It has {', '.join(sorted(names))}."
