"""Surrogate inversion: where a client's records lie on the map, and which records would lie there.

A surrogate describes how a client's part of the map repels points, so that others do not need to see that
part. But it also reveals the part. With the field, a client's summand is the table of its records' places,
each shared among four nodes. With the network (P2), the attack finds places whose repulsion is the network's.
The server has the encoder, so each place is estimated by the public rows that the encoder puts there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import NotApplicableError, Side, Unordered, View, attack
from raydr.federation.transcript import Seen
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.surrogates import Density, DensityRequest, Surrogate, SurrogateRequest

MOST_RECORDS = 256
"""Maximum records of an attacked client. A larger number cannot be separated better, and takes longer."""
MOST_CLIENTS = 40
LEAST_PUBLIC = 50
_NEIGHBORS = 5
_ITERATIONS = 100
_QUERIES = 40  # queries along an axis of the grid on which a network is evaluated


@attack("surrogate-inversion", "records of a client from the surrogate of its part of the map")
def surrogate_inversion(view: View, side: Side) -> Iterator[Unordered]:
    """Make one attempt on each kind of surrogate in the run, in its last round."""
    last: dict[type[Any], dict[int, Seen]] = {Density: {}, Surrogate: {}}
    for seen in view.transcript:
        if seen.client is not None and type(seen.reply) in last:
            last[type(seen.reply)][seen.client] = seen
    if not any(last.values()):
        raise NotApplicableError("no client uploads a surrogate, or the server sees only sums.")
    public = side.require_public(LEAST_PUBLIC)
    fed, found_any = view.fed(public), False
    for kind, by_client in last.items():
        clients = [client for client in by_client if 0 < view.sizes[client] <= MOST_RECORDS][:MOST_CLIENTS]
        parts, shown = {}, {}
        for client in clients:
            request = by_client[client].request
            weights, hidden = request.weights, request.hidden  # type: ignore[attr-defined]
            if id(weights) not in shown:
                shown[id(weights)] = positions_of(fed.astype(np.float32), weights, hidden).astype(np.float64)
            places = _places(by_client[client], view.sizes[client], side.seed)
            if view.projection is None:
                parts[client] = view.unfed(_rows_at(places, shown[id(weights)], fed))
            else:  # the mean of public rows has all columns, which the projection loses
                parts[client] = _rows_at(places, shown[id(weights)], np.asarray(public, np.float64))
        if parts:
            found_any = True
            yield Unordered(
                uses=(kind,),
                knows=f"{len(public):,} rows of similar data, and where the encoder puts them",
                variant="field" if kind is Density else "mlp",
                numbers={"public_rows": len(public), "clients": len(parts)},
                parts=parts,
                guess=np.asarray(public.mean(axis=0, dtype=np.float64)),
            )
    if not found_any:
        raise NotApplicableError(f"every client has more than {MOST_RECORDS} records.")


def _places(seen: Seen, count: int, seed: int) -> Float64Array:
    """Estimate the places (records, 2) of a client's records on the map."""
    match seen.request, seen.reply:
        case DensityRequest() as request, Density() as density:
            axis = np.linspace(-request.reach, request.reach, request.nodes)
            return _drawn_from(density.share, axis, count)
        case SurrogateRequest() as request, Surrogate() as surrogate:
            return _of_network(surrogate, count, seed, request.softening)
    raise TypeError(f"{type(seen.reply).__name__} is not a surrogate")


def _drawn_from(share: Float64Array, axis: Float64Array, count: int) -> Float64Array:
    """Return the places of ``count`` records: for one, the mean of its four nodes; for more, the heaviest cells."""
    left = np.maximum(share, 0.0) * count / max(float(share.sum()), np.finfo(np.float64).tiny)
    places = np.empty((count, 2))
    for record in range(count):
        cells = left[:-1, :-1] + left[1:, :-1] + left[:-1, 1:] + left[1:, 1:]
        row, column = np.unravel_index(int(np.argmax(cells)), cells.shape)
        corner = left[row : row + 2, column : column + 2]
        total = max(float(corner.sum()), np.finfo(np.float64).tiny)
        places[record] = (
            (corner.sum(axis=1) @ axis[row : row + 2]) / total,
            (corner.sum(axis=0) @ axis[column : column + 2]) / total,
        )
        corner -= corner * min(1.0, 1.0 / total)
    return places


def _of_network(surrogate: Surrogate, count: int, seed: int, softening: float) -> Float64Array:
    """Return places whose mean repulsion is nearest to a network's, by gradient descent from where it repels most."""
    import torch

    from raydr.methods.fedne.loss import repulsion, squared_distance
    from raydr.methods.fedne.networks import together

    network = together(surrogate.parameters[None], np.ones((1, 1), np.float32))
    wide = torch.linspace(-30.0, 30.0, 4 * _QUERIES)
    coarse = torch.cartesian_prod(wide, wide)
    with torch.no_grad():
        felt = network(coarse[None])[0]
        peak = coarse[felt > 0.5 * felt.max()]
        low, high = peak.min(dim=0).values - 2.0, peak.max(dim=0).values + 2.0
        axes = [torch.linspace(float(low[axis]), float(high[axis]), _QUERIES) for axis in range(2)]
        queries = torch.cartesian_prod(*axes)
        wanted = network(queries[None])[0]
        order = torch.argsort(wanted, descending=True)[: max(count, 8)]
    random = np.random.default_rng((seed, 4))
    start = queries[order][torch.from_numpy(random.integers(0, len(order), count))]
    noise = torch.from_numpy(random.standard_normal((count, 2)).astype(np.float32))
    places = (start + 0.3 * noise).requires_grad_()
    optimizer = torch.optim.Adam([places], lr=0.1)
    for _ in range(_ITERATIONS):
        optimizer.zero_grad()
        seen = repulsion(squared_distance(queries[:, None], places[None]), softening).mean(dim=1)
        ((seen - wanted) ** 2).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return np.asarray(places.detach().numpy(), np.float64)


def _rows_at(places: Float64Array, shown: Float64Array, rows: Float64Array) -> Float64Array:
    """Return the mean of the public rows nearest to each place."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(shown).query(places, k=min(_NEIGHBORS, len(shown)))
    return np.asarray(rows[near.reshape(len(places), -1)].mean(axis=1))
