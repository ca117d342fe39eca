"""Views of what a server saw, made without a run: what tests of attacks are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from inline_federations import known

from raydr.arrays import Float64Array, FloatArray
from raydr.attacks import Side, View
from raydr.attacks.scoring import AttackErrors, Truth
from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.transcript import Transcript


def federation_seen(
    parts: Sequence[FloatArray], *, packed: bool = False, seed: int = 0, **context: Any
) -> tuple[Federation, Transcript]:
    """A federation of these partitions, and what its server sees; ``packed`` puts all clients into one host."""
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)]
    groups = [hosted] if packed else [[each] for each in hosted]
    hosts = [ClientHost(hosted=group, seed=seed, host_secrets=known(group)) for group in groups]
    transcript = Transcript()
    context = {"seed": seed} | context
    return Federation(
        InlineTransport(hosts), len(hosted), Context(**context), transcript=transcript
    ), transcript


def view_of(parts: Sequence[FloatArray], *requests: Any, mean: bool = False, **more: Any) -> View:
    """What a server sees that asks these clients these requests."""
    federation, transcript = federation_seen(parts)
    for request in requests:
        if mean:
            federation.mean(request, weights="rows")
        else:
            federation.ask(request)
    return View(
        transcript=transcript, sizes=federation.sizes, embedding=np.zeros((federation.rows, 2)), **more
    )


def truth_of(rows: FloatArray, members: Any = ()) -> Truth:
    """Records to judge by."""
    names = [str(row) for row in range(len(rows))]
    return Truth(
        rows=rows, names=names, members=np.asarray(members, np.bool_), shown=np.arange(rows.shape[1])
    )


def scored(found: Any, rows: FloatArray, side: Side | None = None) -> AttackErrors:
    """Errors of a reconstruction of all of these rows."""
    spared = np.zeros(0, np.int64) if side is None else side.spared
    return AttackErrors.of(found.estimate, found.guess, truth_of(rows), spared)


def turned(rows: Float64Array, seed: int = 9) -> Float64Array:
    """Rows under a secret rotation and shift."""
    random = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(random.standard_normal((rows.shape[1], rows.shape[1])))
    return np.asarray((rows - random.normal(0.0, 5.0, rows.shape[1])) @ turn)


def skewed(rows: int, features: int, seed: int) -> Float64Array:
    """Rows like each other: a mixture in few dimensions with third moments, some noise, a constant column last."""
    random = np.random.default_rng(5)
    mixing = random.standard_normal((4, features)) * np.array([4.0, 2.5, 1.5, 1.0])[:, None]
    draw = np.random.default_rng(seed)
    made = draw.gamma(1.0, 1.0, (rows, 4)) @ mixing + 0.05 * draw.standard_normal((rows, features))
    made[:, -1] = 7.0
    return made
