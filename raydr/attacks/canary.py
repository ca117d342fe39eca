"""Canaries: a lower bound on the privacy cost of a run's releases, compared with the claim.

All releases that the accountant charged are made again (:mod:`raydr.federation.replay`), by the run's own
clients, with their rows, messages, shares and mechanisms. In the data of one client, a canary replaces a
record. The canary is the candidate that changes the releases most. Its neighbour is no record under zero-out,
and another candidate in its place under replace-one.

The shift d_r of release r, in units of its charged standard deviation, is computed without noise, so it is
exact. Then noise is drawn many times, each time with other secrets. This gives two bounds, for each kind of
release and for the whole run.

- ``epsilon``: from sum_r w_r <d_r, y_r>, the best statistic to tell whether the canary is present. The shift is known,
  and the standard deviation is bounded from the draws. The weights w_r are fixed on the first half of the draws, and
  the deviation is measured on the second half. So the bound assumes only normal noise. It is below the claim if no
  record of this run changes all releases by as much as is charged.
- ``measured``: the accountant's own sum, with the measured noise of each release if that is surely less than
  charged. Every entry of every release counts, so this detects half the noise even in a release that has a
  hundredth of the budget.

The claim is broken if either bound exceeds it. With honest noise, each does in less than one audit in a
thousand (:mod:`raydr.privacy.canaries`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray
from raydr.attacks.contract import Bounded, NotApplicableError, Side, View, attack
from raydr.federation.client import Client
from raydr.federation.replay import Fields, Part, Replay
from raydr.federation.transcript import Release
from raydr.federation.wire import SumCall
from raydr.methods.landmarks.learning import StepRequest
from raydr.privacy.accounting import epsilon_of
from raydr.privacy.canaries import CONFIDENCE, epsilon_of_mu, most_deviation
from raydr.privacy.ledger import RECORDS
from raydr.threads import one_blas_thread

_NUMBERS, _REPLIES = 20_000_000, 5_000
"""Approximate limits on the noisy numbers that an audit draws, and on the replies with them.

Either takes 1 to 2 s.
"""
_FEWEST_DRAWS = 32
_TRIED = 3
"""Releases of each kind that are used to choose a canary: the first, the last, and one between them."""
_REACHES = (0.75, 1.5, 3.0, 1e3)
"""Distances of canaries from the mean, in root mean square distances of records."""
_AXES = 3
_SOME = 200  # rows of each client that are used to make candidates
_FAR = 1e30

WHOLE = "the whole run"


@attack(
    "canary",
    "a lower bound on epsilon, of each release and of the whole run, from a record that is in the data or not",
)
def canary(view: View, side: Side) -> Iterator[Bounded]:
    """Make one attempt for the whole run, and one for each kind of charged release."""
    if view.replay is None or not view.replay.releases:
        raise NotApplicableError("nothing is charged, so there is no claim to test.")
    yield from bounds(view.replay, view.delta)


def bounds(replay: Replay, delta: float) -> Iterator[Bounded]:
    """Yield the bounds of the whole run, then of each kind of release."""
    releases = replay.releases
    groups = (
        {WHOLE: np.ones(len(releases), np.bool_)} if len({one.charge.unit for one in releases}) == 1 else {}
    )
    for kind in dict.fromkeys(release.charge.kind for release in releases):
        groups[kind] = np.array([release.charge.kind == kind for release in releases])
    with one_blas_thread():
        canaries = CanaryCandidates.of(replay)
        pairs = {name: canaries.worst(chosen) for name, chosen in groups.items()}
        shifts = [
            {name: canaries.shift(index, *pair) for name, pair in pairs.items() if groups[name][index]}
            for index in range(len(releases))
        ]
        draws = canaries.draws
        noise = [Noise.of(canaries, index, draws, shift) for index, shift in enumerate(shifts)]
    tests = sum(len(one.squares) + len(one.along) for one in noise)
    for name, chosen in groups.items():
        some = [one for one, there in zip(noise, chosen, strict=True) if there]
        yield _bounded(name, some, tests, draws, canaries.client, delta)


def _bounded(name: str, noise: Sequence[Noise], tests: int, draws: int, client: int, delta: float) -> Bounded:
    releases = [one.release for one in noise]
    claimed = epsilon_of(Counter(release.charge for release in releases), delta)
    parts = [one.most(tests) for one in noise]
    measured = claimed
    if min(parts) < 1.0:
        less = [
            replace(release.charge, deviation=part * release.charge.deviation)
            for release, part in zip(releases, parts, strict=True)
        ]
        measured = epsilon_of(Counter(less), delta)
    other = "another in its place" if _replaces(releases[0]) else "not"
    return Bounded(
        uses=tuple(dict.fromkeys(type(release.call.request).reply for release in releases)),
        knows=f"the run's clients, requests and mechanisms; one record of client {client}, present or {other}",
        variant=name,
        numbers={"releases": len(releases), "draws": draws},
        epsilon=epsilon_of_mu(_mu(name, noise, draws), delta),
        measured=measured,
        claimed=claimed,
        delta=delta,
        confidence=CONFIDENCE,
    )


def _mu(name: str, noise: Sequence[Noise], draws: int) -> float:
    """Return a lower bound on the shift of all releases together, in standard deviations of the best statistic."""
    half = draws // 2
    weights = np.array([one.pilot**-2.0 for one in noise])
    moved = float(weights @ np.array([one.shifts[name] for one in noise]))
    statistic = np.stack([one.along[name] for one in noise], axis=1)[half:] @ weights
    deviation = most_deviation(float(statistic @ statistic), draws - half)
    return moved / deviation if moved > 0.0 else 0.0


@dataclass(frozen=True)
class Noise:
    """Noise of a release from many draws, in units of the charged standard deviation.

    Attributes
    ----------
    release : Release
    squares : dict of field to (float, int)
        Sum of the squares of all entries, and their number.
    pilot : float
        Upper bound on the standard deviation from the first half of the draws, at most 1.
    shifts : dict of name to float
        Squared length of the shift of each canary.
    along : dict of name to (draws,) float64
        Inner products of the noise and that shift.
    """

    release: Release
    squares: dict[str, tuple[float, int]]
    pilot: float
    shifts: dict[str, float]
    along: dict[str, Float64Array]

    @classmethod
    def of(cls, canaries: CanaryCandidates, index: int, draws: int, shifts: dict[str, Fields]) -> Noise:
        """Draw the noise of a release."""
        parts, release = canaries.seen(index), canaries.replay.releases[index]
        unit = canaries.replay.deviation(release, parts[0].client.index)
        along = {name: np.zeros(draws) for name in shifts}
        squares = {name: np.zeros(draws) for name in parts[0].clean}
        for draw in range(draws):
            noise = {name: np.zeros_like(values) for name, values in parts[0].clean.items()}
            for part in parts:
                weight = canaries.replay.weight(release, part.client.index) / unit
                for name, values in part.noise("canary", draw).items():
                    noise[name] += weight * values
            for name, values in noise.items():
                squares[name][draw] = np.vdot(values, values)
            for canary, shift in shifts.items():
                along[canary][draw] = _dot(noise, shift)
        sizes = {name: values.size for name, values in parts[0].clean.items()}
        half = draws // 2
        pilot = [most_deviation(squares[name][:half].sum(), half * size) for name, size in sizes.items()]
        return cls(
            release,
            {name: (float(found.sum()), draws * sizes[name]) for name, found in squares.items()},
            min(1.0, *pilot),
            {name: _dot(shift, shift) for name, shift in shifts.items()},
            along,
        )

    def most(self, tests: int) -> float:
        """Return an upper bound on the standard deviation, as a part of what is charged: at most 1."""
        found = [most_deviation(squares, count, tests) for squares, count in self.squares.values()]
        for name, along in self.along.items():
            if self.shifts[name] > 0.0:
                squares = float(along @ along) / self.shifts[name]
                found.append(most_deviation(squares, len(along), tests))
        return min(1.0, *found)


@dataclass(frozen=True)
class CanaryCandidates:
    """Candidates for a canary of one client, as they are at each release.

    Attributes
    ----------
    replay : Replay
    client : int
        Owner of the record: the client that the releases protect least.
    states : list of dict of client to Client
        Clients as they were at each release.
    candidates : list of (candidates, features)
        Records to put in the place of the client's last record, as they were at each release.
    """

    replay: Replay
    client: int
    states: list[dict[int, Client]]
    candidates: list[FloatArray]
    _known: dict[int, Float64Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, replay: Replay) -> CanaryCandidates:
        """Replay the run with the client's own rows, and with candidates for rows."""
        costs = np.zeros(len(replay.sizes))
        for release in replay.releases:
            for client in release.call.clients:
                if replay.sizes[client]:
                    costs[client] += replay.deviation(release, client) ** -2.0
        chosen = int(costs.argmax())
        states: list[dict[int, Client]] = [{} for _ in replay.releases]
        for client in range(len(replay.sizes)):
            for state, now in zip(states, replay.clients(client, replay.rows(client)), strict=True):
                state[client] = now
        rows, made = replay.rows(chosen), _candidates(replay)
        batches = []
        for start in range(0, len(made), len(rows)):
            batch = made[start : start + len(rows)].astype(rows.dtype)
            held = np.concatenate([batch, rows[len(batch) :]])
            batches.append([now.rows[: len(batch)] for now in replay.clients(chosen, held)])
        return cls(replay, chosen, states, [np.concatenate(parts) for parts in zip(*batches, strict=True)])

    @property
    def draws(self) -> int:
        """Number of noise draws: even, and the same for all releases."""
        replies, numbers = 0, 0
        sizes: dict[str, int] = {}
        for index, release in enumerate(self.replay.releases):
            seen, kind = self.seen(index), release.charge.kind
            if kind not in sizes:
                sizes[kind] = sum(values.size for values in seen[0].clean.values())
            replies += len(seen)
            numbers += len(seen) * sizes[kind]
        return max(_FEWEST_DRAWS, min(_NUMBERS // numbers, _REPLIES // replies) // 2 * 2)

    def seen(self, index: int) -> list[Part]:
        """Return the parts of a charged release: summands of clients that do not collude, or one upload."""
        release, state = self.replay.releases[index], self.states[index]
        if release.of_sum:
            there = [client for client in release.call.clients if self.replay.weight(release, client)]
            # Colluders reveal their shares of the noise. The charge does not include these shares.
            others = [client for client in there if client != self.client]
            colluding = others[: min(self._colluding(release), len(there) - 1)]
            there = [client for client in there if client not in colluding]
        elif self.client in release.call.clients:
            there = [self.client]
        else:
            there = [self.replay.least_protected(release)]
        return [Part(release, state[client]) for client in there]

    @staticmethod
    def _colluding(release: Release) -> int:
        sharing = release.call.sharing if isinstance(release.call, SumCall) else None
        return sharing.colluding if sharing is not None else 0

    def worst(self, chosen: BoolArray) -> tuple[int, int]:
        """Return the canary and the neighbour that change the chosen releases most."""
        absent = len(self.candidates[0])
        total = np.zeros((absent + 1, absent + 1))
        for kind in dict.fromkeys(
            self.replay.releases[index].charge.kind for index in np.flatnonzero(chosen)
        ):
            every = [
                index
                for index in np.flatnonzero(chosen)
                if self.replay.releases[index].charge.kind == kind
                and self.client in self.replay.releases[index].call.clients
            ]
            tried = (
                sorted({every[at] for at in np.linspace(0, len(every) - 1, _TRIED).astype(int)})
                if every
                else []
            )
            for index in tried:
                total += len(every) / len(tried) * self._distances(index)
        if _replaces(self.replay.releases[int(np.flatnonzero(chosen)[0])]):
            total[absent] = total[:, absent] = 0.0
        else:
            total[:, :absent] = 0.0
        one, other = np.unravel_index(int(total.argmax()), total.shape)
        return int(one), int(other)

    def _distances(self, index: int) -> Float64Array:
        """Return the squared distances of a release between any two candidates. The last candidate is no record."""
        if index not in self._known:
            count = len(self.candidates[index]) + 1
            found = np.stack([_flat(self._value(index, candidate)) for candidate in range(count)])
            lengths = np.einsum("ij,ij->i", found, found)
            self._known[index] = np.maximum(lengths[:, None] + lengths[None] - 2.0 * found @ found.T, 0.0)
        return self._known[index]

    def shift(self, index: int, canary: int, other: int) -> Fields:
        """Return how far a canary instead of another candidate moves a release, in charged deviations."""
        release = self.replay.releases[index]
        if self.client not in release.call.clients:
            clean = self.seen(index)[0].clean
            return {name: np.zeros_like(values) for name, values in clean.items()}
        one, two = self._value(index, canary), self._value(index, other)
        return {name: one[name] - two[name] for name in one}

    def _value(self, index: int, candidate: int) -> Fields:
        """Return the client's part of a release with a candidate, or no record, in place of its last record."""
        release, now, made = (
            self.replay.releases[index],
            self.states[index][self.client],
            self.candidates[index],
        )
        unit = self.replay.weight(release, self.client) / self.replay.deviation(release, self.client)
        rows, kept = now.rows[:-1], 1.0
        row = made[candidate] if candidate < len(made) else None
        if release.charge.unit == "client":
            held = now.rows if candidate == 0 or row is None else np.tile(row, (len(now.rows), 1))
            kept = 0.0 if row is None else 1.0
        elif row is not None:
            held = np.concatenate([rows, row[None]])
        elif release.charge.kind == RECORDS:
            held = np.concatenate([rows, np.zeros_like(now.rows[-1:])])
        elif isinstance(release.call.request, StepRequest):
            # Out of reach of every kernel, so nothing of it is left even after several local steps.
            held = np.concatenate([rows, np.full_like(now.rows[-1:], _FAR)])
        else:
            # Like the mean over the public number of rows, of which one adds nothing.
            held, kept = rows if len(rows) else now.rows, 0.0
            if len(rows):
                request = release.call.request_for(self.client)
                kept = request.sensitivity(len(now.rows)) / request.sensitivity(len(rows))
        part = Part(release, replace(now, rows=np.ascontiguousarray(held), memory={}))
        return {name: kept * unit * values for name, values in part.clean.items()}


def _candidates(replay: Replay) -> FloatArray:
    """Return records (candidates, features) along the widest axes of the rows, and the farthest record."""
    rows = np.concatenate(
        [replay.rows(client)[:_SOME].astype(np.float64) for client in range(len(replay.sizes))]
    )
    known = ~np.isnan(rows)
    mean = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(
        known.sum(axis=0), 1
    )  # 0 for a column without values
    seen = np.where(np.isnan(rows), mean, rows) - mean
    lengths = np.linalg.norm(seen, axis=1)
    _, _, directions = np.linalg.svd(seen[:: max(1, len(seen) // 1000)], full_matrices=False)
    single = np.eye(len(mean))[np.argsort(-seen.var(axis=0), kind="stable")[:_AXES]]
    axes = np.concatenate([directions[:_AXES], single])
    width = float(np.sqrt((lengths**2).mean())) or 1.0
    made = [mean + sign * reach * width * axis for axis in axes for reach in _REACHES for sign in (1.0, -1.0)]
    return np.stack([seen[lengths.argmax()] + mean, *made])


def _replaces(release: Release) -> bool:
    return release.charge.relation == "replace-one"


def _flat(fields: Fields) -> Float64Array:
    return np.concatenate([values.reshape(-1) for values in fields.values()])


def _dot(one: Fields, other: Fields) -> float:
    return float(sum(np.vdot(one[name], other[name]) for name in one))
