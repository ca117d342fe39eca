"""The embedder choice of a scenario, under ``method.embedder``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator

from raydr.embedding import EMBEDDERS, Embedder


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    return {"kind": "tsne", **value} if isinstance(value, Mapping) else value


if TYPE_CHECKING:
    AnyEmbedder: TypeAlias = Embedder
else:
    AnyEmbedder = Annotated[EMBEDDERS.choice, BeforeValidator(_named)]
"""Any embedder, by its ``kind`` alone or with its settings."""
