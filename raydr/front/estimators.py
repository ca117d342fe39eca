"""scikit-learn's face of raydr: an estimator for each method, made of its settings.

``raydr.FedTSNE(perplexity=10).fit_transform(X, sites=hospital)`` runs the scenario that says the same, to the same
bits. A method that is added to raydr, here or by another package, has its estimator by that alone: the name is that of
its settings, and every setting is a parameter. What a fit leaves is a run folder, which holds no row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from raydr.arrays import FloatArray, Int64Array
from raydr.data import IN_MEMORY, Table, in_memory
from raydr.errors import ScenarioError
from raydr.front.fitted import FittedRun, temporary_place
from raydr.front.parameters import CLIENTS, COMMON, LEAST_ROWS, UNSAID, as_setting, default_of, documented
from raydr.front.result import Result
from raydr.front.table_inputs import Given, features_of, gathered, owners_of, tables_of
from raydr.methods import METHODS
from raydr.methods.method import Method
from raydr.registry import ExtensionError


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
        from raydr.front.progress_bars import heard_on_terminal
        from raydr.scenarios.runner import run
        from raydr.scenarios.schema.reading import read

        given = gathered(X, y, sites, self.label)
        table = self._table(given)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        scenario = read(self._content(table, int(seed)), self.scenario)
        folder = temporary_place() if self.out is None else Path(self.out).expanduser().absolute()
        result = FittedRun(folder, temporary=self.out is None)
        with heard_on_terminal(quiet=not self.verbose) as listener:
            run(scenario, out=folder, table=table, report=self.out is not None, listener=listener)
        self._run = result
        self.seed_ = int(seed)
        self.embedding_ = result.embedding
        self.metrics_, self.ledger_, self.privacy_ = result.metrics, result.ledger, result.privacy
        self.clients_ = result.sites
        if result.clusters is not None:
            self.labels_ = result.clusters
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
        drawn = METHODS[self._kind].settings.noise_of_its_own or bool(self.privacy)
        # Keys and noise come from the system, unless a file has the secret that they follow from.
        tags.non_deterministic = drawn and not (self.privacy or {}).get("secret")
        return tags

    def _table(self, given: Given) -> Table:
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
        method = {name: as_setting(getattr(self, name), settings[name]) for name in self._parameters}
        if table.client_keys is None:
            most = max(1, min(CLIENTS, len(table.rows) // LEAST_ROWS))
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
            "data": {
                "source": IN_MEMORY,
                "rows": len(table.rows),
                "scale": self.scale,
                "harmonize": self.harmonize
                if isinstance(self.harmonize, str)
                else dict(self.harmonize or {}) or None,
            },
            "clients": clients,
            "method": {"kind": self._kind}
            | {name: value for name, value in method.items() if value is not UNSAID},
            "metrics": self.metrics if isinstance(self.metrics, str) else list(self.metrics),
            "privacy": dict(self.privacy or {}),
            # Nobody can go on with a run whose rows are gone.
            "runtime": {"federation": self.federation, "checkpoint_every": 0},
        }


class PlacingMap(FederatedMap):
    """One whose map takes new rows."""

    def transform(self, X: Any, *, sites: Any = None) -> FloatArray:
        """Place new rows on the map, by what the run left behind: nobody is asked, and nothing leaves the caller.

        Rows that were mapped are placed anew, near where :attr:`embedding_` has them.

        Parameters
        ----------
        X : (rows, features) array, DataFrame or AnnData, or a list of them
            With the features of :meth:`fit`.
        sites : (rows,) array, or str, optional
            Whose each row is, as in :meth:`fit`: needed where sites are harmonized, and else of no use.

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
        from raydr.scenarios.afterwards.transforming import place

        table = self._new(X, sites)
        return place(self._run.folder, table)

    def _new(self, X: Any, sites: Any) -> Table:
        """New rows with the features of :meth:`fit`, and whose they are."""
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        tables = [
            validate_data(self, features_of(table, known), reset=False, dtype="numeric")
            for table in tables_of(X)[0]
        ]
        arrays = {"X": np.concatenate(tables)} | owners_of(X, sites)
        check_consistent_length(arrays["X"], *([arrays["client"]] if "client" in arrays else []))
        return in_memory(arrays, for_map=False)


class PredictingMap(PlacingMap):
    """One that tells the clusters of new rows too."""

    def predict(self, X: Any, *, sites: Any = None) -> Int64Array:
        """Cluster of each new row, (rows,) int64: that of most of the mapped records near it.

        ``X``, ``sites`` and what is raised are as of :meth:`transform`.
        """
        from raydr.scenarios.afterwards.transforming import predict

        table = self._new(X, sites)
        return predict(self._run.folder, table)


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
    both = sorted(fields.keys() & COMMON.keys())
    if both:
        raise ExtensionError(
            f"The method {kind!r} has settings {both}, which every estimator has: rename them."
        )
    defaults = {name: default_of(field) for name, field in fields.items()} | {
        name: default for name, (default, _, _) in COMMON.items()
    }
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
