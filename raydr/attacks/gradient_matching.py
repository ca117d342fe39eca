"""Gradient matching: the records of small clients from uploads that are meant to be summed.

Without secure sums, the server has each client's summand. Two kinds reveal small clients.

A gradient of P1's objective (13) is, for each landmark, a sum of k(x, y) (x - y) over the client's records.
With one record, it points from every landmark to the record, and the lines meet there. With several, the
unknowns are the features of the records, the equations those of the landmarks, and least squares solves them
(Zhu et al. 2019).

An encoder's first layer receives the records themselves. The gradient of a hidden unit's weights, divided by
that of its offset, is a mean of the records that activated the unit. If only one did, it is exactly that
record (Phong et al. 2018). FedNE's control variates contain the mean gradient itself. The change of the
weights, which Adam makes of it, does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import NotApplicableError, Side, Unordered, View, attack
from raydr.methods.fedne.clients import Change, TrainRequest
from raydr.methods.fedne.projection import WIDTH
from raydr.methods.landmarks.learning import Step, StepRequest

MOST_RECORDS = 8
"""Maximum number of records of an attacked client. With more, least squares finds other records that fit as well."""
MOST_CLIENTS = 40
_STARTS = 3
_ITERATIONS = 400
_BATCHES = 64  # maximum number of candidates from a client's hidden units


@attack(
    "gradient-matching", "records of small clients from the gradients and encoder updates that they upload"
)
def gradient_matching(view: View, side: Side) -> Iterator[Unordered]:
    """Make one attempt on each kind of upload in the run."""
    small = [client for client, size in enumerate(view.sizes) if 0 < size <= MOST_RECORDS][:MOST_CLIENTS]
    steps = _first(view, Step)
    changes = _first(view, Change)
    if not steps and not changes:
        raise NotApplicableError(
            "the server has no single client's gradient: none is uploaded, or it sees only sums."
        )
    if not small:
        raise NotApplicableError(
            f"every client has more than {MOST_RECORDS} records, and other records would fit such a sum of gradients."
        )
    guess, found_any = _guess(view, side), False
    for kind, seen, matched in ((Step, steps, _from_gradient), (Change, changes, _from_encoder)):
        parts = {}
        for client in small:
            if client in seen:
                found = matched(view, client, *seen[client], guess, side.seed)
                if found is not None:
                    parts[client] = found
        if parts:
            found_any = True
            yield Unordered(
                uses=(kind,),
                knows="the row counts of clients"
                + (
                    f", and the mean of {len(side.public):,} rows of similar data" if len(side.public) else ""
                ),
                variant=kind.__name__,
                numbers={"clients": len(parts), "records": sum(map(len, parts.values()))},
                parts=parts,
                guess=guess,
            )
    if not found_any:
        raise NotApplicableError(
            "clients upload the result of several local steps, which it cannot undo, or zeros, which reveal nothing."
        )


def _first(view: View, kind: type[Step] | type[Change]) -> dict[int, tuple[object, object]]:
    """Return each client's first request and reply of a kind."""
    found: dict[int, tuple[object, object]] = {}
    for seen, reply in view.transcript.of(kind):
        if seen.client is not None:
            found.setdefault(seen.client, (seen.request, reply))
    return found


def _guess(view: View, side: Side) -> Float64Array:
    """Return the guess for a record without the messages: the mean of public rows, or of the first landmarks."""
    if len(side.public):
        return side.guess(side.public)
    for seen in view.transcript:
        if isinstance(seen.request, StepRequest):
            return side.guess(view.unfed(seen.request.landmarks)[: 0 if view.keyed else None])
    raise NotApplicableError("there are no public rows to make a guess from.")


def _from_gradient(
    view: View, client: int, request: object, reply: object, guess: Float64Array, seed: int
) -> Float64Array | None:
    """Return records (records, features) with a client's gradient.

    None if it is 0, which reveals nothing about them.
    """
    if not isinstance(request, StepRequest) or not isinstance(reply, Step) or request.local_steps > 1:
        return None
    if not reply.direction.any():  # if records are far from all landmarks, their kernels are 0
        return None
    landmarks, gamma, count = request.landmarks, request.gamma, view.sizes[client]
    # sum_i k(x_i, y_j) (x_i - y_j). The gradient of (13) is a multiple of it.
    pull = reply.direction * (-count * len(landmarks) / (4.0 * gamma))
    first = _where_lines_meet(landmarks, pull)
    if count == 1:
        return view.unfed(first[None])
    return view.unfed(_fitted(landmarks, gamma, pull, count, first, seed))


def _where_lines_meet(landmarks: Float64Array, pull: Float64Array) -> Float64Array:
    """Return the point (features,) nearest to the lines from each landmark along its pull."""
    lengths = np.linalg.norm(pull, axis=1)
    # A landmark far from all records has almost no pull, and its line is rounding.
    weights = lengths / max(float(lengths.max()), np.finfo(np.float64).tiny)
    along = pull / np.maximum(lengths, np.finfo(np.float64).tiny)[:, None]
    centre = landmarks.mean(axis=0)
    at = landmarks - centre
    total = float(weights.sum())
    right = weights @ at - (weights * (along * at).sum(axis=1)) @ along
    # (sum w) I - U^T W U is inverted in the span of the lines: landmarks x landmarks, not features x
    # features.
    scaled = along * np.sqrt(weights)[:, None]
    inner = total * np.eye(len(scaled)) - scaled @ scaled.T
    solved = np.linalg.lstsq(inner, scaled @ right, rcond=1e-12)[0]
    return np.asarray(centre + (right + scaled.T @ solved) / total)


def _fitted(
    landmarks: Float64Array, gamma: float, pull: Float64Array, count: int, first: Float64Array, seed: int
) -> Float64Array:
    """Return records with these pulls on the landmarks, by least squares from several starts."""
    from scipy.optimize import minimize

    centre = landmarks.mean(axis=0)
    at, scale = landmarks - centre, 1.0 / np.sqrt(gamma)
    size = max(float((pull**2).sum()), np.finfo(np.float64).tiny)

    def loss(flat: Float64Array) -> tuple[float, Float64Array]:
        rows = flat.reshape(count, -1) * scale
        squared = ((rows**2).sum(axis=1)[:, None] - 2.0 * rows @ at.T) + (at**2).sum(axis=1)
        kernel = np.exp(-gamma * np.maximum(squared, 0.0))
        off = kernel.T @ rows - kernel.sum(axis=0)[:, None] * at - pull
        # d/dx_i of |off|^2: 2 k (off_j - 2 gamma (x_i - y_j) (x_i - y_j).off_j), summed over landmarks.
        reach = rows @ off.T - (at * off).sum(axis=1)
        weight = kernel * reach
        slope = 2.0 * (kernel @ off - 2.0 * gamma * (weight.sum(axis=1)[:, None] * rows - weight @ at))
        return float((off**2).sum()) / size, (slope * scale / size).ravel()

    random = np.random.default_rng((seed, 3))
    best, least = np.tile(first, (count, 1)), np.inf
    spread = float(np.sqrt(at.var(axis=0).mean()))
    for _ in range(_STARTS):
        start = (first - centre + spread * random.standard_normal((count, len(first)))) / scale
        found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
        if found.fun < least:
            best, least = centre + found.x.reshape(count, -1) * scale, float(found.fun)
    return best


def _from_encoder(
    view: View, client: int, request: object, reply: object, guess: Float64Array, seed: int
) -> Float64Array | None:
    """Return the records (records, features) that changed an encoder's first layer."""
    if not isinstance(request, TrainRequest) or not isinstance(reply, Change):
        return None
    gradient = reply.control if reply.control.size else reply.weights
    features = len(guess) if view.projection is None else WIDTH
    hidden = request.training.hidden
    if not hidden or not np.any(gradient):
        return None
    weights = np.asarray(gradient[: features * hidden[0]], np.float64).reshape(features, hidden[0])
    offsets = np.asarray(gradient[features * hidden[0] : features * hidden[0] + hidden[0]], np.float64)
    units = np.argsort(-np.abs(offsets))
    units = units[np.abs(offsets[units]) > 1e-3 * np.abs(offsets).max()][:_BATCHES]
    if not len(units):
        return None
    candidates = (weights[:, units] / offsets[units]).T
    return view.unfed(_most_repeated(candidates, view.sizes[client]))


def _most_repeated(candidates: Float64Array, count: int) -> Float64Array:
    """Return ``count`` of the candidates (units, features): the most repeated, each unlike those before it."""
    from scipy.spatial.distance import cdist

    apart = cdist(candidates, candidates)
    typical = float(np.median(apart[apart > 0])) if np.any(apart > 0) else 1.0
    repeated = (np.exp(-((apart / (0.05 * typical)) ** 2))).sum(axis=1)
    chosen = [int(np.argmax(repeated))]
    while len(chosen) < count:
        news = np.minimum(1.0, apart[:, chosen].min(axis=1) / (0.5 * typical))
        chosen.append(int(np.argmax(repeated * news)))
    return candidates[chosen]
