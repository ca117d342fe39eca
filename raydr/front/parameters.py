"""Parameters of estimators: settings of the method, common parameters, and their documentation."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter
from textwrap import fill
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raydr.methods.method import Method
from raydr.settings import Settings

CLIENTS, LEAST_ROWS = 10, 5
"""Default number of clients for rows without sites, and the minimum number of rows for each."""
COMMON: Mapping[str, tuple[Any, str, str]] = types.MappingProxyType(
    {
        "n_clients": (
            None,
            "int, optional",
            f"number of clients for rows without sites, which are dealt at random; default: {CLIENTS}, or fewer so that"
            f" each has {LEAST_ROWS} rows",
        ),
        "join_spellings": (
            False,
            "bool",
            "names of ``sites`` that differ only in case and blanks are one site, called by the most frequent spelling",
        ),
        "scale": (
            None,
            '{"none", "standard", "minmax", "maxabs"}, optional',
            "federated scaling of the features; default: standard for data frames, as in ``raydr map``, unless the"
            " metric compares columns as they are read, and none for arrays and sparse matrices",
        ),
        "metric": (
            "euclidean",
            '{"euclidean", "cosine", "correlation", "hellinger", "hamming", "gower"}',
            "distance between rows, after scaling",
        ),
        "target_weight": (
            0.0,
            "float >= 0 < 1",
            "share of the classes in the variance of distances; above 0 the map shows them, and new rows lie between"
            " classes; 0 is colours only, while umap-learn's default is 0.5 whenever it gets ``y``",
        ),
        "harmonize": (
            "none",
            '{"none", "center", "scale", "combat"} or mapping',
            "adjust sites to each other before their rows are scaled; a mapping can also have ``keep``",
        ),
        "label": (
            None,
            "str, optional",
            "column of classes in a data frame or in an AnnData's obs, for colours and metrics; it is not a feature",
        ),
        "time": (
            None,
            "str, optional",
            "column of dates, years or visits in a data frame or in an AnnData's obs; all periods are on one map, and"
            " ``result_.periods`` has the table by period; it is not a feature",
        ),
        "codebook": (
            None,
            "str, Path or sequence of mapping, optional",
            "how columns of data frames are read: the path of a codebook, or its rows; see ``data.codebook``",
        ),
        "metrics": ("default", '"default" or sequence of str', "metrics of the map: ``raydr list metrics``"),
        "privacy": (
            None,
            "mapping, optional",
            "section ``privacy`` of a scenario: noise, secure aggregation; default: none, or strict with secure sums"
            " for a private map that surveys its columns",
        ),
        "scenario": (
            None,
            "mapping, optional",
            "any other keys of a scenario by their dotted names, such as ``clients.participation``",
        ),
        "federation": (
            "inline",
            '{"inline", "ray"}',
            "one process, or Ray actors; results are identical bit for bit",
        ),
        "out": (
            None,
            "str or Path, optional",
            "folder for the run and its report; must not exist, or be empty; default: a temporary folder that is"
            " deleted with the estimator",
        ),
        "verbose": (
            False,
            "bool",
            "show progress: bars on a terminal and in a notebook, lines elsewhere",
        ),
        "random_state": (
            0,
            "int, RandomState instance or None",
            "seed of every random draw except keys and noise; None: a different one in each fit",
        ),
    }
)
"""Parameters of all estimators in addition to the method's settings: default, type and meaning."""

OTHER_NAMES: Mapping[str, str] = types.MappingProxyType(
    {"n_neighbors": "neighbors", "n_components": "dimensions"}
)
"""Names that umap-learn and scikit-learn have for settings of methods, which estimators take as well."""
MEANT: Mapping[str, str] = types.MappingProxyType(
    {
        "init": "start",
        "max_iter": "iterations",
        "n_clusters": "clusters",
        "n_epochs": "epochs",
        "n_iter": "iterations",
        "negative_sample_rate": "negative_samples",
        "seed": "random_state",
    }
)
"""Names that these and other packages have for parameters of estimators, for errors."""


def protected(clients: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the method's and the privacy settings under which a private map has its epsilon against everybody.

    Sums are secret. With fewer than three clients a sum would show single uploads, so each has the whole noise.
    """
    if clients < 3:
        return {"per": "client"}, {"strict": True}
    return {}, {"strict": True, "secure_aggregation": True}


UNSAID = object()
"""Marks a parameter that is left out of the scenario."""


def default_of(field: FieldInfo) -> Any:
    """Return the default of a setting as a plain value; of a section its kind, or None if it has no kinds."""
    if field.is_required():
        return Parameter.empty
    value = field.get_default(call_default_factory=True)
    if not isinstance(value, Settings):
        return value
    kind = getattr(value, "kind", None)
    return kind if kind is not None and value == type(value)() else None


def as_setting(value: Any, field: FieldInfo) -> Any:
    """Return the value of a parameter in a scenario."""
    if not isinstance(field.default, Settings):
        return value.item() if isinstance(value, np.generic) else value
    if value is None:
        return UNSAID
    return {"kind": value} if isinstance(value, str) else value


def documented(method: Method, fields: Mapping[str, FieldInfo]) -> str:
    """Return the docstring of an estimator: method, parameters and attributes."""
    lines = [
        method.summary,
        "",
        f"The method {method.title}. Every setting is a keyword-only parameter.",
        "",
        "Parameters",
        "----------",
    ]
    for name, field in fields.items():
        default = default_of(field)
        also = "" if default is Parameter.empty else f", default={default!r}"
        lines += _entry(name, _spelt(field.annotation, field.metadata) + also, field.description or "")
    for other, name in OTHER_NAMES.items():
        if name in fields:
            lines += _entry(other, "int, optional", f"another name of ``{name}``")
    for name, (default, kind, meaning) in COMMON.items():
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
        "the map, in the order of the rows; tables of a list follow each other",
    ),
    ("metrics_", "dict", 'by "federated" and, if compared, "central", then by name; None if not computed'),
    ("ledger_", "list of dict", "every kind of message: see :class:`raydr.privacy.ledger.Entry`"),
    ("privacy_", "dict", "privacy cost: see :class:`raydr.privacy.statement.Statement`"),
    ("clients_", "(rows,) str", "name of each row's client"),
    ("seed_", "int", "seed of every random draw except keys and noise"),
    ("report_", "Path", "path of the report"),
    ("result_", "raydr.Result", "the run"),
    ("n_features_in_", "int", "number of features"),
    ("feature_names_in_", "(features,) object", "names of the features, if the rows have any"),
)


def _entry(name: str, kind: str, meaning: str) -> Iterable[str]:
    return (
        f"{name} : {kind}",
        *fill(meaning, 100, initial_indent="    ", subsequent_indent="    ").split("\n"),
    )


def _spelt(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type in numpydoc form, with its limits."""
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
