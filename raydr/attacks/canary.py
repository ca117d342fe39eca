"""Canaries: a lower bound on what a run's releases cost, compared with the claim.

All releases that the accountant charged are made again (:mod:`raydr.federation.replay`): by the run's own clients,
with their rows, messages, shares and mechanisms. In one client's data a record is replaced by a canary. Of many
candidates it is the one that moves the releases most; under zero-out its neighbour is its absence, under replace-one
another candidate in its place.

The shift d_r of release r, in units of its charged deviation, is computed without noise, and so is exact. Noise is then
drawn again, many times, each time under other secrets. Two bounds follow, for each kind of release and for the whole
run.

- ``epsilon``: of sum_r w_r <d_r, y_r>, which tells best whether the canary is there, the shift is known and the
  deviation is bounded from the draws. The weights w_r are fixed on the first half of the draws and the deviation is
  measured on the second half, so the bound needs no more than normal noise. It is below the claim where no record of
  this run moves all releases by as much as is charged.
- ``measured``: the accountant's own sum, with the noise of each release as measured where that is surely less than
  charged. Every entry of every release counts, so this finds half the noise also in a release that has a hundredth of
  the budget.

The claim is broken if either exceeds it. With honest noise each does in less than one audit of a thousand
(:mod:`raydr.privacy.canaries`).
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
"""Noisy numbers, and replies that hold them, that an audit draws, about: either takes 1 to 2 s."""
_FEWEST_DRAWS = 32
_TRIED = 3
"""Releases of each kind by which a canary is chosen: the first, the last, and one between them."""
_REACHES = (0.75, 1.5, 3.0, 1e3)
"""How far canaries are from the mean, in root mean square distances of records."""
_AXES = 3
_SOME = 200  # rows of each client by which candidates are made
_FAR = 1e30

WHOLE = "the whole run"


@attack(
    "canary", "a lower bound on epsilon, of each release and of the whole run, by a record in the data or not"
)
def canary(view: View, side: Side) -> Iterator[Bounded]:
    """One attempt for the whole run, and one for each kind of release that is charged."""
    if view.replay is None or not view.replay.releases:
        raise NotApplicableError("nothing is charged, so nothing is claimed that could be wrong.")
    yield from bounds(view.replay, view.delta)


def bounds(replay: Replay, delta: float) -> Iterator[Bounded]:
    """Return bounds of the whole run, then of each kind of release."""
    releases = replay.releases
    groups = (
        {WHOLE: np.ones(len(releases), np.bool_)} if len({one.charge.unit for one in releases}) == 1 else {}
    )
    for kind in dict.fromkeys(release.charge.kind for release in releases):
        groups[kind] = np.array([release.charge.kind == kind for release in releases])
    with one_blas_thread():
        flock = Flock.of(replay)
        pairs = {name: flock.worst(chosen) for name, chosen in groups.items()}
        shifts = [
            {name: flock.shift(index, *pair) for name, pair in pairs.items() if groups[name][index]}
            for index in range(len(releases))
        ]
        draws = flock.draws
        noise = [Noise.of(flock, index, draws, shift) for index, shift in enumerate(shifts)]
    tests = sum(len(one.squares) + len(one.along) for one in noise)
    for name, chosen in groups.items():
        some = [one for one, there in zip(noise, chosen, strict=True) if there]
        yield _bounded(name, some, tests, draws, flock.client, delta)


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
        knows=f"the run's clients, requests and mechanisms; one record of client {client}, there or {other}",
        variant=name,
        numbers={"releases": len(releases), "draws": draws},
        epsilon=epsilon_of_mu(_mu(name, noise, draws), delta),
        measured=measured,
        claimed=claimed,
        delta=delta,
        confidence=CONFIDENCE,
    )


def _mu(name: str, noise: Sequence[Noise], draws: int) -> float:
    """Bound from below the shift of all releases together, in deviations of the best statistic."""
    half = draws // 2
    weights = np.array([one.pilot**-2.0 for one in noise])
    moved = float(weights @ np.array([one.shifts[name] for one in noise]))
    statistic = np.stack([one.along[name] for one in noise], axis=1)[half:] @ weights
    deviation = most_deviation(float(statistic @ statistic), draws - half)
    return moved / deviation if moved > 0.0 else 0.0


@dataclass(frozen=True)
class Noise:
    """Noise of a release that was drawn many times, in units of what is charged.

    Attributes
    ----------
    release : Release
    squares : dict of field to (float, int)
        Sum of the squares of all entries, and how many there are.
    pilot : float
        What the deviation is at most, by the first half of the draws; no more than 1.
    shifts : dict of name to float
        Squared length of the shift of each canary.
    along : dict of name to (draws,) float64
        Products of the noise and that shift.
    """

    release: Release
    squares: dict[str, tuple[float, int]]
    pilot: float
    shifts: dict[str, float]
    along: dict[str, Float64Array]

    @classmethod
    def of(cls, flock: Flock, index: int, draws: int, shifts: dict[str, Fields]) -> Noise:
        """Draw the noise of a release."""
        parts, release = flock.seen(index), flock.replay.releases[index]
        unit = flock.replay.deviation(release, parts[0].client.index)
        along = {name: np.zeros(draws) for name in shifts}
        squares = {name: np.zeros(draws) for name in parts[0].clean}
        for draw in range(draws):
            noise = {name: np.zeros_like(values) for name, values in parts[0].clean.items()}
            for part in parts:
                weight = flock.replay.weight(release, part.client.index) / unit
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
        """Bound its deviation from above, as a part of what is charged; at most 1."""
        found = [most_deviation(squares, count, tests) for squares, count in self.squares.values()]
        for name, along in self.along.items():
            if self.shifts[name] > 0.0:
                squares = float(along @ along) / self.shifts[name]
                found.append(most_deviation(squares, len(along), tests))
        return min(1.0, *found)


@dataclass(frozen=True)
class Flock:
    """Candidates for a canary of one client, as they are at each release.

    Attributes
    ----------
    replay : Replay
    client : int
        Whose record it is: the one that the releases protect least.
    states : list of dict of client to Client
        Clients as they were at each release.
    candidates : list of (candidates, features)
        Records that might be in the place of the client's last, as they were at each release.
    """

    replay: Replay
    client: int
    states: list[dict[int, Client]]
    candidates: list[FloatArray]
    _known: dict[int, Float64Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, replay: Replay) -> Flock:
        """Follow the run with the client's own rows, and with candidates for rows."""
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
        """How often noise is drawn, an even number, the same for all releases."""
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
        """Return what makes up a charged release: summands of clients that do not collude, or one upload."""
        release, state = self.replay.releases[index], self.states[index]
        if release.of_sum:
            there = [client for client in release.call.clients if self.replay.weight(release, client)]
            # Colluders tell their shares of the noise, which is charged without them.
            others = [client for client in there if client != self.client]
            told = others[: min(self._colluding(release), len(there) - 1)]
            there = [client for client in there if client not in told]
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
        """The canary, and its neighbour, that move the chosen releases most."""
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
        """Squared distances of a release between any two candidates, the last of which is no record."""
        if index not in self._known:
            count = len(self.candidates[index]) + 1
            found = np.stack([_flat(self._value(index, candidate)) for candidate in range(count)])
            lengths = np.einsum("ij,ij->i", found, found)
            self._known[index] = np.maximum(lengths[:, None] + lengths[None] - 2.0 * found @ found.T, 0.0)
        return self._known[index]

    def shift(self, index: int, canary: int, other: int) -> Fields:
        """How far a canary in the place of another moves a release, in units of the deviation that is charged."""
        release = self.replay.releases[index]
        if self.client not in release.call.clients:
            clean = self.seen(index)[0].clean
            return {name: np.zeros_like(values) for name, values in clean.items()}
        one, two = self._value(index, canary), self._value(index, other)
        return {name: one[name] - two[name] for name in one}

    def _value(self, index: int, candidate: int) -> Fields:
        """Return what the client adds to a release with a candidate in the place of its last record, or with none."""
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
            # Where no kernel reaches: also of several local steps nothing is left of it.
            held = np.concatenate([rows, np.full_like(now.rows[-1:], _FAR)])
        else:
            # As the mean over as many rows as are public, of which one adds nothing.
            held, kept = rows if len(rows) else now.rows, 0.0
            if len(rows):
                told = release.call.told(self.client)
                kept = told.sensitivity(len(now.rows)) / told.sensitivity(len(rows))
        part = Part(release, replace(now, rows=np.ascontiguousarray(held), memory={}))
        return {name: kept * unit * values for name, values in part.clean.items()}


def _candidates(replay: Replay) -> FloatArray:
    """Records (candidates, features) along the widest axes of the rows, near and far, and the most unlike of them."""
    rows = np.concatenate(
        [replay.rows(client)[:_SOME].astype(np.float64) for client in range(len(replay.sizes))]
    )
    mean = np.nanmean(rows, axis=0)
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
