"""Secure aggregation: sums are bit-identical to plain ones, and the server sees uniform bytes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from masked_sums import LABEL, group_of, members_of, opened_by, secret_of, secure_sum
from places import DOCS
from scipy.stats import chi2

from raydr.arrays import Int64Array, UInt8Array
from raydr.errors import ScenarioError
from raydr.privacy.masking import (
    Batch,
    Degrees,
    Group,
    Label,
    MaskingError,
    Member,
    TooFewError,
    advertise,
    degrees,
    enter,
    keys_for,
    mask,
    recover,
    reveal,
    share,
    shares_for,
    unmask,
)
from raydr.privacy.masking.degrees import CORRECTNESS_BITS, SECURITY_BITS, parted
from raydr.privacy.masking.keys import agree, derive, extract, private_key
from raydr.privacy.masking.messages import name_for
from raydr.privacy.masking.shamir import PRIME, combine, split, split_many
from raydr.privacy.masking.streams import BLOCK, add_streams

FALSE_ALARM = 1e-9
LEAST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
TEN = group_of(degrees(10, 0.2, 0.3))
THIRTY = group_of(Degrees(clients=30, colluders=3, dropouts=3, masking=4, sharing=8, threshold=5))


def vectors_of(group: Group, size: int = 5, seed: int = 0) -> dict[int, Int64Array]:
    """Return vectors over the whole range of int64."""
    random = np.random.default_rng(seed)
    return {
        client: random.integers(LEAST, LARGEST, size, np.int64, endpoint=True) for client in group.clients
    }


def plain_sum(vectors: dict[int, Int64Array], left_out: tuple[int, ...] = ()) -> Int64Array:
    """Return the sum in Python integers, wrapped at the end."""
    kept = [vector.tolist() for client, vector in vectors.items() if client not in left_out]
    sums = [sum(column) for column in zip(*kept, strict=True)]
    return np.array([(value + 2**63) % 2**64 - 2**63 for value in sums], np.int64)


def uniform(content: bytes) -> bool:
    """Chi-squared statistic of bytes; uniform bytes fail the test once in 10^9."""
    counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    expected = len(content) / 256
    return bool(chi2.sf(float(((counts - expected) ** 2 / expected).sum()), 255) > FALSE_ALARM)


# Sums


@pytest.mark.parametrize("stage", ["unshared", "lost", "silent"])
@pytest.mark.parametrize("count", range(TEN.degrees.dropouts + 1))
def test_masked_sums_equal_plain_sums_for_every_dropout_count(stage: str, count: int) -> None:
    vectors, gone = vectors_of(TEN), TEN.clients[2 : 2 + count]
    expected = plain_sum(vectors, () if stage == "silent" else gone)
    assert np.array_equal(secure_sum(TEN, vectors, **{stage: gone}), expected)


@pytest.mark.parametrize(("stage", "most"), [("unshared", 3), ("lost", 3), ("silent", 4)])
def test_one_dropout_too_many_is_refused(stage: str, most: int) -> None:
    """Silent clients are in the sum, so only the holders of their shares must be enough."""
    assert (TEN.degrees.dropouts, TEN.degrees.threshold) == (3, 6)
    secure_sum(TEN, vectors_of(TEN), **{stage: TEN.clients[2 : 2 + most]})
    with pytest.raises(TooFewError, match=r"only [56] of"):
        secure_sum(TEN, vectors_of(TEN), **{stage: TEN.clients[2 : 3 + most]})


def test_dropouts_at_all_stages_count_together() -> None:
    vectors, (one, two, three, four, five) = vectors_of(TEN), TEN.clients[:5]
    total = secure_sum(TEN, vectors, unshared=[one], lost=[two], silent=[three])
    assert np.array_equal(total, plain_sum(vectors, (one, two)))
    with pytest.raises(TooFewError):
        secure_sum(TEN, vectors, unshared=[one], lost=[two], silent=[three, four, five])


def test_pairs_that_both_drop_out_are_unmasked() -> None:
    vectors, client = vectors_of(THIRTY), THIRTY.clients[0]
    partners = THIRTY.partners(client)[:2]
    total = secure_sum(THIRTY, vectors, lost=[client], silent=partners)
    assert np.array_equal(total, plain_sum(vectors, (client,)))


@st.composite
def small_groups(draw: st.DrawFn) -> Group:
    clients = draw(st.integers(3, 12))
    sharing = draw(st.sampled_from([*range(2, clients - 1, 2), clients - 1]))
    masking = draw(st.sampled_from([*range(2, sharing, 2), sharing]))
    dropouts = draw(st.integers(0, clients - 1))
    threshold = draw(st.integers(1, sharing))
    return group_of(
        Degrees(
            clients=clients,
            colluders=1,
            dropouts=dropouts,
            masking=masking,
            sharing=sharing,
            threshold=threshold,
        ),
        draw(st.integers(0, 3)),
    )


@settings(max_examples=60)
@given(group=small_groups(), data=st.data())
def test_masked_sums_are_correct_for_random_graphs_and_dropouts(group: Group, data: st.DataObject) -> None:
    leaves = {client: data.draw(st.sampled_from([3, 3, 3, 0, 1, 2])) for client in group.clients}
    unshared, lost, silent = (
        tuple(client for client, stage in leaves.items() if stage == wanted) for wanted in range(3)
    )
    values = st.lists(st.integers(int(LEAST), int(LARGEST)), min_size=2, max_size=2)
    vectors = {client: np.array(data.draw(values), np.int64) for client in group.clients}
    shared, alive = set(group.clients) - set(unshared), set(group.clients) - set(unshared + lost)
    answer, threshold = alive - set(silent), group.degrees.threshold

    def near(client: int, others: set[int]) -> int:
        return len(others.intersection(group.neighbours(client)))

    enough = (
        len(alive) >= group.degrees.clients - group.degrees.dropouts
        and all(near(client, alive) >= threshold for client in alive)
        and all(near(client, answer) >= threshold for client in shared - answer)
    )
    if enough and alive:
        total = secure_sum(group, vectors, unshared=unshared, lost=lost, silent=silent)
        assert np.array_equal(total, plain_sum(vectors, unshared + lost))
    elif alive:
        with pytest.raises(TooFewError):
            secure_sum(group, vectors, unshared=unshared, lost=lost, silent=silent)


def test_shapes_are_kept_and_inputs_unchanged() -> None:
    vectors = {client: vector.reshape(3, 4) for client, vector in vectors_of(TEN, 12).items()}
    before = {client: vector.copy() for client, vector in vectors.items()}
    total = secure_sum(TEN, vectors)
    assert total.shape == (3, 4)
    assert np.array_equal(total, np.add.reduce([*vectors.values()]))
    assert all(np.array_equal(vectors[client], before[client]) for client in vectors)


def test_streams_do_not_depend_on_the_size_of_blocks() -> None:
    key, other = bytes(32), bytes(range(32))
    long, short = np.zeros(2 * BLOCK + 3, np.int64), np.zeros(5, np.int64)
    add_streams(long, [key], [other], bytes(16))
    add_streams(short, [key], [other], bytes(16))
    assert np.array_equal(long[:5], short)
    assert uniform(long.tobytes()), "no block repeats another"
    add_streams(long, [other], [key], bytes(16))
    assert not long.any()


def test_streams_are_aes_in_counter_mode() -> None:
    """Counter mode by the same library; the first counter block follows from the nonce (NIST SP 800-38D, 7.1)."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB, GCM

    key, name = bytes(range(32)), bytes(range(16))
    found = np.zeros(BLOCK + 9, np.int64)
    add_streams(found, [key], [], name)
    for number, part in enumerate((found[:BLOCK], found[BLOCK:])):
        gcm = Cipher(AES256(key), GCM(name + number.to_bytes(4))).encryptor()
        cipher = gcm.update(bytes(part.nbytes))
        first = Cipher(AES256(key), ECB()).decryptor().update(cipher[:16])
        assert Cipher(AES256(key), CTR(first)).encryptor().update(bytes(part.nbytes)) == part.tobytes()


def test_masks_of_clients_in_one_process_equal_their_own_masks() -> None:
    """Streams between them cancel, for pairs inside, across and outside of the process."""
    for group in (TEN, THIRTY):
        members, vectors = members_of(group), vectors_of(group)
        for together in (group.clients[:1], group.clients[1:6], group.clients):
            apart = [mask([members[client]], LABEL, group.clients, vectors[client]) for client in together]
            total = np.add.reduce([vectors[client] for client in together])
            joint = mask([members[client] for client in together], LABEL, group.clients, total)
            assert np.array_equal(joint, np.add.reduce(apart))
            assert (joint != total).all()


def test_process_of_all_clients_makes_only_their_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.privacy.masking import client

    made: list[int] = []
    monkeypatch.setattr(
        client, "add_streams", lambda vector, added, subtracted, name: made.append(len(added))
    )
    mask(list(members_of(TEN).values()), LABEL, TEN.clients, np.zeros(3, np.int64))
    assert made == [10]


def test_sums_of_a_batch_have_independent_secrets() -> None:
    """Of one sum, all secrets that the server may learn; they tell nothing of the next sum."""
    member, batch = members_of(TEN)[0], Batch("first start", 7, 3)
    labels = [Label(batch, place) for place in range(3)]
    seeds = [
        *(reveal({0: member.own}, TEN, label, TEN.clients, [])[0].tobytes() for label in labels),
        *(seed for label in labels for seed in member.pair_seeds(label).values()),
    ]
    assert len({seed[start : start + 16] for seed in seeds for start in (0, 16)}) == 2 * len(seeds)
    shared = {client: share(each, batch) for client, each in members_of(TEN).items()}
    assert len({row.tobytes() for each in shared.values() for row in each.checks}) == 30
    vectors = vectors_of(TEN)
    for label in labels:
        total = secure_sum(TEN, vectors, lost=[3], silent=[6], label=label)
        assert np.array_equal(total, plain_sum(vectors, (3,)))
    zeros = np.zeros(50_000, np.int64)
    for one, other in combinations(labels, 2):
        assert uniform((masked_by(0, zeros, one) - masked_by(0, zeros, other)).tobytes())


# What the server sees


def masked_by(client: int, vector: Int64Array, label: Label = LABEL, group: Group = TEN) -> Int64Array:
    return mask([members_of(group)[client]], label, group.clients, vector)


def test_masked_vector_is_uniform() -> None:
    vector = np.zeros(50_000, np.int64)
    assert uniform(masked_by(0, vector).tobytes())
    for byte in range(8):  # in every entry, not only in all together
        assert uniform(masked_by(0, vector).view(np.uint8)[byte::8].tobytes())


def test_missing_and_low_entropy_masks_are_detected() -> None:
    random = np.random.default_rng(0)
    vector = np.rint(random.normal(0, 2**40, 50_000)).astype(np.int64)
    assert not uniform(vector.tobytes())
    low = vector + random.integers(0, 2**32, vector.size)
    assert not uniform(low.tobytes())
    biased = np.frombuffer(masked_by(0, vector).tobytes(), np.uint8).copy()
    biased[::20] = 7
    assert not uniform(biased.tobytes())


def test_masks_of_different_labels_are_independent() -> None:
    one, other = np.zeros(50_000, np.int64), np.arange(50_000)
    again = masked_by(0, other) - masked_by(0, one)
    assert np.array_equal(again, other)
    assert not uniform(again.tobytes())
    others = Batch("first start", 8, 3), Batch("first start", 7, 4), Batch("second start", 7, 3)
    for label in (Label(LABEL.batch, 2), *(Label(batch, LABEL.place) for batch in others)):
        assert uniform((masked_by(0, other, label) - masked_by(0, one)).tobytes())


def test_streams_depend_on_the_clients_that_shared() -> None:
    vector, member = np.zeros(50_000, np.int64), members_of(TEN)[0]
    fewer = [client for client in TEN.clients if client != TEN.clients[-1]]
    difference = mask([member], LABEL, fewer, vector) - mask([member], LABEL, TEN.clients, vector)
    assert uniform(difference.tobytes())


def test_late_upload_stays_masked() -> None:
    group, late = TEN, TEN.clients[4]
    members = members_of(group)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    alive = [client for client in group.clients if client != late]
    upload = mask([members[late]], LABEL, shared, np.zeros(50_000, np.int64))
    opened = opened_by(group, LABEL, shared, alive)
    zeros = np.zeros(50_000, np.int64)
    masked = np.add.reduce([mask([members[client]], LABEL, shared, zeros) for client in alive])
    assert not unmask(group, LABEL, shared, alive, *opened, masked).any()
    # The server subtracts all known pairwise streams; the client's own stream is left.
    added, subtracted = known_streams(members[late], tuple(shared), ())
    add_streams(upload, subtracted, added[1:], name_for(shared))
    assert uniform(upload.tobytes())
    add_streams(upload, [], added[:1], name_for(shared))
    assert not upload.any()


def test_survivor_vectors_are_uniform_given_their_sum() -> None:
    # All that the server can compute: secrets of all but two honest clients, and revealed shares.
    group, honest = TEN, TEN.clients[:2]
    members = members_of(group)
    vectors = {client: np.full(50_000, client, np.int64) for client in group.clients}
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    stripped = []
    for client in honest:
        own = mask([members[client]], LABEL, shared, vectors[client])
        keys = known_streams(members[client], tuple(shared), honest)
        add_streams(own, keys[1], keys[0], name_for(shared))
        stripped.append(own)
    assert all(uniform(vector.tobytes()) for vector in stripped)
    assert np.array_equal(stripped[0] + stripped[1], vectors[honest[0]] + vectors[honest[1]])


def known_streams(
    member: Member, shared: tuple[int, ...], honest: tuple[int, ...]
) -> tuple[list[bytes], list[bytes]]:
    """Return the streams that a client added and subtracted, except those shared with another honest client."""
    from raydr.privacy.masking.messages import own_secret, stream_key

    added = [stream_key(own_secret(member.own, member.group, LABEL, "own stream"))]
    subtracted = []
    for partner, key in member.pair_seeds(LABEL).items():
        if partner in shared and partner not in honest:
            (added if member.client < partner else subtracted).append(key)
    return added, subtracted


# Shares


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_fewer_shares_than_the_threshold_reveal_nothing(threshold: int) -> None:
    """In a small field, every secret gives every list of threshold - 1 shares equally often."""
    prime, holders = 7, (0, 2, 3, 5)
    for known in combinations(range(len(holders)), threshold - 1):
        views = []
        for secret in range(prime):
            seen: dict[tuple[int, ...], int] = {}
            for coefficients in np.ndindex(*[prime] * (threshold - 1)):
                shares = split([secret], np.array(coefficients, np.uint8).reshape(-1, 1, 1), holders, prime)
                view = tuple(shares[place][0] for place in known)
                seen[view] = seen.get(view, 0) + 1
            views.append(seen)
        assert all(seen == views[0] for seen in views)
        assert len(views[0]) == prime ** (threshold - 1)


def alone(secret: int, coefficients: list[int], holders: Sequence[int]) -> list[int]:
    """Return the shares of one secret."""
    content = b"".join(coefficient.to_bytes(48, "little") for coefficient in coefficients)
    rows = np.frombuffer(content, np.uint8).reshape(len(coefficients), 1, 48)
    return [share for (share,) in split([secret], rows, holders)]


@settings(max_examples=30)
@given(data=st.data(), secrets=st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=5))
def test_polynomials_side_by_side_have_the_values_of_each(data: st.DataObject, secrets: list[int]) -> None:
    """No carry between them, also for the largest coefficients, points and many steps."""
    shape = data.draw(st.integers(1, 40)), len(secrets), 48
    rows = np.random.default_rng(data.draw(st.integers(0, 3))).integers(0, 256, shape, np.uint8)
    if data.draw(st.booleans()):
        rows[...] = 255
    holders = [0, 5, 2**20 - 1, 10**6]
    for holder, shares in zip(holders, split(secrets, rows, holders), strict=True):
        for place, secret in enumerate(secrets):
            value = secret
            for power, row in enumerate(rows[:, place], start=1):
                value += int.from_bytes(row.tobytes(), "little") * (holder + 1) ** power
            assert shares[place] == value % PRIME


@settings(max_examples=20)
@given(
    steps=st.integers(0, 30),
    secrets=st.lists(st.integers(0, 2**256 - 1), min_size=1, max_size=4),
    fill=st.sampled_from([None, 0, 1, 255]),
    seed=st.integers(0, 9),
)
@example(steps=1, secrets=[2**256 - 1], fill=255, seed=0)
@example(steps=0, secrets=[2**256 - 1], fill=None, seed=0)
def test_compiled_shares_equal_those_of_long_integers(
    steps: int, secrets: list[int], fill: int | None, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, 256, (steps, len(secrets), 48), np.uint8)
    if fill is not None:
        rows[...] = fill
    holders = [0, 7, 999, 2**30 - 2]
    found = split_many([secret.to_bytes(32) for secret in secrets], rows, holders)
    expected = split(secrets, rows, holders)
    assert [[int.from_bytes(each.tobytes()) for each in held] for held in found] == expected


def test_compiled_shares_are_right_next_to_the_prime() -> None:
    """A line through secret 0 whose slope makes the share -1, 0, 1, 2^256 or 2^256 - 1, and sums that wrap."""
    for wanted in (PRIME - 1, 0, 1, 2**256, 2**256 - 1, 2**256 + 296):
        for holder in (0, 41):
            for multiple in (0, 1, 2**125):
                slope = wanted * pow(holder + 1, -1, PRIME) % PRIME + multiple * PRIME
                rows = np.frombuffer(slope.to_bytes(48, "little"), np.uint8).reshape(1, 1, 48)
                (found,) = split_many([bytes(32)], rows, [holder]).reshape(1, 33)
                assert int.from_bytes(found.tobytes()) == wanted


def test_large_groups_share_by_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes as by long integers."""
    from raydr.privacy.masking import client

    expected = share(members_of(TEN)[0], LABEL.batch)
    monkeypatch.setattr(client, "_MANY", 10)
    monkeypatch.setattr(client, "split", None)
    found = share(members_of(TEN)[0], LABEL.batch)
    assert all(np.array_equal(value, vars(expected)[name]) for name, value in vars(found).items())


@settings(max_examples=30)
@given(
    secrets=st.lists(st.integers(0, PRIME - 1), min_size=2, max_size=2),
    coefficients=st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=9),
    data=st.data(),
)
def test_any_secret_fits_too_few_shares(
    secrets: list[int], coefficients: list[int], data: st.DataObject
) -> None:
    holders = data.draw(st.permutations(range(20)))[: len(coefficients) + 1]
    shares = dict(zip(holders, alone(secrets[0], coefficients, holders), strict=True))
    assert combine(shares) == secrets[0]
    # The last share has one value for every secret, so the others fit all secrets.
    last, few = holders[-1], {holder: shares[holder] for holder in holders[:-1]}
    low, high = combine(few | {last: 0}), combine(few | {last: 1})
    slope = (high - low) % PRIME
    fitting = (secrets[1] - low) * pow(slope, -1, PRIME) % PRIME
    assert combine(few | {last: fitting}) == secrets[1]


def test_prime_is_the_first_above_all_secrets() -> None:
    def prime(number: int) -> bool:
        """Return whether a number passes Miller-Rabin with the first 40 primes as bases."""
        odd, twos = number - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in [n for n in range(2, 174) if all(n % m for m in range(2, n))]:
            if number % base == 0:
                return number == base
            power = pow(base, odd, number)
            if power not in (1, number - 1) and all(
                pow(power, 2**square, number) != number - 1 for square in range(1, twos)
            ):
                return False
        return True

    assert prime(PRIME)
    assert not any(prime(number) for number in range(2**256, PRIME))


def test_shares_of_few_colluders_fit_any_secret() -> None:
    """Shares that colluding neighbours can open are uniform for any secret."""
    group, victim = THIRTY, THIRTY.clients[0]
    members, threshold = members_of(group), group.degrees.threshold
    colluders = group.neighbours(victim)[: threshold - 1]
    seen = bytearray()
    for call in range(400):
        label = Label(Batch("first start", call, 1), 0)
        shared = {victim: share(members[victim], label.batch)}
        for colluder in colluders:
            rows = shares_for(group, colluder, shared, [victim])
            # The low 32 bytes of either share; the top one is 0 but once in 2^247.
            seen += opened(members[colluder], label, rows, victim)[0][1:]
            seen += opened(members[colluder], label, rows, victim)[1][1:]
    assert uniform(bytes(seen))


def opened(member: Member, label: Label, rows: UInt8Array, sender: int) -> tuple[bytes, bytes]:
    """Return both shares that a colluder can open."""
    from raydr.privacy.masking.keys import unseal
    from raydr.privacy.masking.messages import SHARE, derive_for

    key = derive_for(member.agreed[sender], member.group, label.batch, "shares", sender, member.client)
    both = unseal(key, rows[member.group.neighbours(member.client).index(sender)].tobytes())
    assert both is not None
    return both[:SHARE], both[SHARE:]


# Refusals


def test_contradictory_calls_are_refused() -> None:
    group, members = TEN, members_of(TEN)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    everyone, first, vector = group.clients, group.clients[0], np.zeros(3, np.int64)
    rows = shares_for(group, first, shared, everyone[1:])
    owns = {first: members[first].own}

    def recovered(*sets: Collection[int], rows: UInt8Array = rows) -> None:
        recover(members[first], LABEL, rows, *sets)

    def revealed(alive: Collection[int], gone: Collection[int], silent: Collection[int] = ()) -> None:
        reveal(owns, group, LABEL, alive, gone)

    for ask in (revealed, recovered):
        with pytest.raises(MaskingError, match="client 6 is listed both as uploaded and as dropped out"):
            ask(everyone, [6], [])
        with pytest.raises(MaskingError, match=r"client 0 .* not listed as having uploaded"):
            ask(everyone[1:], everyone[:1], [])
        with pytest.raises(MaskingError, match="client 1 has uploaded, but is not in the group"):
            ask([*everyone, 1], [], [])
        with pytest.raises(MaskingError, match="client 99 has shared, but is not in the group"):
            ask(everyone, [99], [])
        with pytest.raises(TooFewError, match="only 6 of 10 clients have uploaded"):
            ask(everyone[:6], everyone[6:], [])
    with pytest.raises(MaskingError, match="client 3 is listed as silent, but not as having uploaded"):
        recovered([client for client in everyone if client != 3], [3], [3])
    with pytest.raises(MaskingError, match="client 1 has shared, but is not in the group"):
        mask([members[first]], LABEL, [*everyone, 1], vector)
    with pytest.raises(MaskingError, match=r"client 0 .* not listed as having shared"):
        mask([members[first]], LABEL, everyone[1:], vector)
    with pytest.raises(MaskingError, match="float64"):
        mask([members[first]], LABEL, everyone, vector.astype(float))
    with pytest.raises(MaskingError, match="shares have type uint8 and shape"):
        recovered(everyone, [], [], rows=rows[1:])
    with pytest.raises(MaskingError, match="client 1 is not in the group"):
        advertise_all_and_enter(group, 1)
    with pytest.raises(MaskingError, match="ascending"):
        Group("a run", everyone[::-1], group.degrees)


def advertise_all_and_enter(group: Group, client: int, **changed: UInt8Array) -> Member:
    public = {other: advertise(secret_of(other), group.run, other) for other in group.clients}
    public |= {int(other[1:]): key for other, key in changed.items()}
    return enter(secret_of(client), group, client, keys_for(group, client, public))


SMALL_ORDER = (
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_keys_of_small_order_are_refused(key: str) -> None:
    point = np.frombuffer(bytes.fromhex(key), np.uint8)
    with pytest.raises(MaskingError, match="public key of client 3 has small order"):
        advertise_all_and_enter(TEN, 0, c3=point)


def test_duplicate_keys_are_refused() -> None:
    own, sixth = (advertise(secret_of(client), TEN.run, client) for client in (0, 6))
    with pytest.raises(MaskingError, match="clients 0 and 3 have the same public key"):
        advertise_all_and_enter(TEN, 0, c3=own)
    with pytest.raises(MaskingError, match="clients 3 and 6 have the same public key"):
        advertise_all_and_enter(TEN, 0, c3=sixth)


@pytest.mark.parametrize("forgery", ["a bit", "another's", "another sum's", "another group's"])
def test_shares_sealed_for_another_client_or_sum_are_refused(forgery: str) -> None:
    group, members = TEN, members_of(TEN)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    rows = shares_for(group, 0, shared, [6])
    match forgery:
        case "a bit":
            rows[1, 20] ^= 1
        case "another's":
            rows[1] = shares_for(group, 3, shared, [6])[1]
        case "another sum's":
            rows[1] = share(members[6], Batch("first start", 8, 3)).shares[0]
        case "another group's":
            rows[1] = share(members_of(group_of(TEN.degrees, seed=1))[6], LABEL.batch).shares[0]
    with pytest.raises(MaskingError, match="client 0 cannot open the shares from client 6: they are forged"):
        recover(members[0], LABEL, rows, group.clients, [], [6])


def test_only_shares_of_lost_clients_leave() -> None:
    """Neither the server nor a neighbour sends a share of a client that revealed its own seed."""
    shared = {client: share(each, LABEL.batch) for client, each in members_of(TEN).items()}
    alive = [client for client in TEN.clients if client != 3]
    rows = shares_for(TEN, 0, shared, [3, 6])
    assert [bool(row.any()) for row in rows] == [client in (3, 6) for client in TEN.neighbours(0)]
    everything = shares_for(TEN, 0, shared, TEN.clients)
    sent = recover(members_of(TEN)[0], LABEL, everything, alive, [3], [6])
    assert [bool(row.any()) for row in sent] == [client in (3, 6) for client in TEN.neighbours(0)]


def test_wrong_revealed_seed_is_detected() -> None:
    group, members = TEN, members_of(TEN)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    masked = np.add.reduce([mask([each], LABEL, shared, np.arange(4)) for each in members.values()])
    revealed, recovered = opened_by(group, LABEL, shared, group.clients)
    assert not recovered
    before = masked.copy()
    assert np.array_equal(
        unmask(group, LABEL, shared, group.clients, revealed, {}, masked), 10 * np.arange(4)
    )
    assert np.array_equal(masked, before), "the total that is given stays as it is"
    other = Label(LABEL.batch, LABEL.place + 1)
    for forged in (revealed[3], reveal({6: members[6].own}, group, other, group.clients, [])[6]):
        with pytest.raises(MaskingError, match=r"was revealed of client 6 .* forged"):
            unmask(group, LABEL, shared, group.clients, revealed | {6: forged}, {}, masked)


@pytest.mark.parametrize("stage", ["lost", "silent"])
def test_wrong_revealed_share_is_detected(stage: str) -> None:
    group, members = TEN, members_of(TEN)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    alive = [client for client in group.clients if stage == "silent" or client != 6]
    masked = np.add.reduce([mask([members[client]], LABEL, shared, np.arange(4)) for client in alive])
    revealed, recovered = opened_by(group, LABEL, shared, alive, [6])
    total = unmask(group, LABEL, shared, alive, revealed, recovered, masked)
    assert np.array_equal(total, len(alive) * np.arange(4))
    forged = {holder: rows.copy() for holder, rows in recovered.items()}
    forged[0][group.neighbours(0).index(6), 30] ^= 1
    with pytest.raises(MaskingError, match=r"was revealed of client 6 .* forged"):
        unmask(group, LABEL, shared, alive, revealed, forged, masked)
    # Shares of a field element that has more than 32 bytes.
    holders, coefficients = group.neighbours(6), [1] * (group.degrees.threshold - 1)
    for holder, value in zip(holders, alone(2**256, coefficients, holders), strict=True):
        recovered[holder][group.neighbours(holder).index(6)] = np.frombuffer(value.to_bytes(33), np.uint8)
    with pytest.raises(MaskingError, match=r"was revealed of client 6 .* forged"):
        unmask(group, LABEL, shared, alive, revealed, recovered, masked)


def test_server_refuses_unknown_clients() -> None:
    group, members = TEN, members_of(TEN)
    shared = {client: share(members[client], LABEL.batch) for client in group.clients[1:]}
    total = np.zeros(3, np.int64)
    with pytest.raises(MaskingError, match="client 0 has uploaded, but not shared"):
        unmask(group, LABEL, shared, group.clients, {}, {}, total)
    rows = np.zeros((9, 33), np.uint8)
    for sent in ({}, {0: rows}), ({0: rows[0, :32]}, {}):
        with pytest.raises(MaskingError, match="client 0 has revealed, but not uploaded"):
            unmask(group, LABEL, shared, group.clients[1:], *sent, total)


def test_client_refuses_a_sum_with_too_few_neighbours() -> None:
    """Enough clients of the group are left, but too few neighbours to recover the secret."""
    group = group_of(Degrees(clients=30, colluders=3, dropouts=10, masking=4, sharing=8, threshold=5))
    member, near = members_of(group)[0], group.neighbours(0)
    for gone, refused in ((near[:3], False), (near[:4], True)):
        left = [client for client in group.clients if client not in gone]
        if not refused:
            mask([member], LABEL, left, np.arange(4))
            reveal({0: member.own}, group, LABEL, left, gone)
            continue
        with pytest.raises(TooFewError, match="only 4 of 8 neighbours of client 0 have shared"):
            mask([member], LABEL, left, np.arange(4))
        with pytest.raises(TooFewError, match="only 4 of 8 neighbours of client 0 have uploaded"):
            reveal({0: member.own}, group, LABEL, left, gone)


def test_client_refuses_unknown_clients_and_too_few_keys() -> None:
    members = members_of(TEN)
    with pytest.raises(MaskingError, match="client 99 has shared, but is not in the group"):
        mask([members[0]], LABEL, [*TEN.clients, 99], np.arange(4))
    with pytest.raises(
        MaskingError, match=r"public keys have type uint8 and shape \(8, 32\); expected uint8 and \(9, 32\)"
    ):
        enter(secret_of(0), TEN, 0, np.zeros((8, 32), np.uint8))


# The graph


def test_two_clients_cannot_mask_a_sum() -> None:
    with pytest.raises(ScenarioError, match="at least 3 clients, got 2"):
        degrees(2)
    with pytest.raises(ScenarioError, match="Fewer than 2 are left"):
        degrees(3, 0.2, 0.34)
    for parts in ((1.0, 0.1), (0.1, 1.0), (-0.1, 0.1), (0.1, -1.0)):
        with pytest.raises(ScenarioError, match="at least 0 and below 1"):
            degrees(10, *parts)


@pytest.mark.parametrize("clients", [3, 10, 30, 100, 300])
@pytest.mark.parametrize(("colluding", "dropping"), [(0.2, 0.1), (0.1, 0.1), (0.33, 0.33)])
def test_degrees_meet_their_failure_bounds(clients: int, colluding: float, dropping: float) -> None:
    from scipy.stats import hypergeom

    found = degrees(clients, colluding, dropping)
    known = hypergeom.sf(found.threshold - 1, clients - 1, found.colluders, found.sharing)
    lost = hypergeom.sf(found.sharing - found.threshold, clients - 1, found.dropouts, found.sharing)
    apart = max(
        float(parted(clients, gone, found.masking)) for gone in range(found.colluders + found.dropouts + 1)
    )
    assert clients * known + apart <= 2.0**-SECURITY_BITS
    assert clients * lost <= 2.0**-CORRECTNESS_BITS
    assert found.masking <= found.sharing <= clients - 1


@pytest.mark.parametrize(
    ("clients", "gone", "degree"),
    [(9, 4, 4), (9, 5, 2), (10, 4, 2), (11, 6, 4), (10, 6, 6), (9, 7, 6), (5, 3, 2), (4, 3, 2), (6, 4, 4)],
)
def test_disconnection_probability_equals_enumeration(clients: int, gone: int, degree: int) -> None:
    apart = [0, 0]
    for missing in combinations(range(clients), gone):
        left = [place for place in range(clients) if place not in missing]
        reached, new = set(), {left[0]}
        while new:
            reached |= new
            new = {
                place
                for place in left
                for other in reached
                if min((place - other) % clients, (other - place) % clients) <= degree // 2
            } - reached
        apart[len(reached) < len(left)] += 1
    assert parted(clients, gone, degree) == Fraction(apart[1], sum(apart))


def test_complete_graph_never_disconnects() -> None:
    assert parted(6, 4, 5) == 0


@pytest.mark.parametrize(
    ("colluding", "dropping"), [(0.2, 0.1), (0.1, 0.1), (0.33, 0.33), (0.0, 0.0), (0.05, 0.4), (0.4, 0.0)]
)
def test_degrees_are_minimal_and_thresholds_maximal(colluding: float, dropping: float) -> None:
    """The test tries all values, with probabilities of another library."""
    from scipy.stats import hypergeom

    for clients in (*range(3, 19), 24, 31, 40, 47, 60, 83):
        gone = [max(1, int(Fraction(str(colluding)) * clients)), int(Fraction(str(dropping)) * clients)]
        if clients - sum(gone) < 2:
            continue
        others = clients - 1
        graphs = [*range(2, others, 2), others]
        masking = next(graph for graph in graphs if parted(clients, sum(gone), graph) <= 2.0**-41)
        if clients <= 16:
            masking = others
        for sharing in (graph for graph in graphs if graph >= masking):
            # The largest threshold that survivors reach, and that colluders miss by one.
            few = np.arange(1, sharing + 1)
            enough = clients * hypergeom.sf(sharing - few, others, gone[1], sharing) <= 2.0**-30
            threshold = int(few[enough].max(initial=0))
            known = hypergeom.sf(threshold - 1, others, gone[0], sharing)
            if sharing == others or (threshold and clients * known <= 2.0**-41):
                break
        assert degrees(clients, colluding, dropping) == Degrees(
            clients=clients,
            colluders=gone[0],
            dropouts=gone[1],
            masking=masking,
            sharing=sharing,
            threshold=threshold,
        )


@pytest.mark.parametrize(
    "found",
    [
        *map(degrees, (17, 30, 100)),
        Degrees(clients=8, colluders=1, dropouts=1, masking=4, sharing=6, threshold=2),
    ],
)
def test_neighbours_are_mutual_and_seeded(found: Degrees) -> None:
    group, other = (group_of(found, seed) for seed in (0, 1))
    for client in group.clients:
        near, nearest = group.neighbours(client), group.partners(client)
        assert len(set(near)) == group.degrees.sharing
        assert len(set(nearest)) == group.degrees.masking
        assert set(nearest) <= set(near) <= set(group.clients) - {client}
        assert all(client in group.neighbours(neighbour) for neighbour in near)
        assert all(client in group.partners(partner) for partner in nearest)
    assert any(group.neighbours(client) != other.neighbours(client) for client in group.clients)


def test_table_of_degrees_matches_the_computation() -> None:
    assumed = ((0.2, 0.1), (0.1, 0.1), (0.33, 0.33))
    pages = [
        Path(degrees.__wrapped__.__code__.co_filename).read_text(),
        (DOCS / "secure-aggregation.md").read_text(),
    ]
    for clients in (3, 10, 30, 100, 1000):
        cells = [f"{clients:,}"]
        for parts in assumed:
            found = degrees(clients, *parts)
            cells.append(f"{found.masking}/{found.sharing}, {found.threshold}")
        docstring, table = (line.replace(" ", "") for line in ("".join(cells), "|" + "|".join(cells) + "|"))
        for page, row in zip(pages, (docstring, table), strict=True):
            assert row in page.replace(" ", "").splitlines()


# Stateless clients, and the protocol as it is


def test_client_repeats_its_bytes_from_the_secret() -> None:
    before, after = members_of(TEN)[0], advertise_all_and_enter(TEN, 0)
    assert before is not after
    for one, other in zip(
        share(before, LABEL.batch).__dict__.values(), share(after, LABEL.batch).__dict__.values(), strict=True
    ):
        assert np.array_equal(one, other)
    vector = np.arange(9)
    assert np.array_equal(
        mask([before], LABEL, TEN.clients, vector), mask([after], LABEL, TEN.clients, vector)
    )


def test_secrets_are_not_in_repr() -> None:
    member = advertise_all_and_enter(TEN, 0)
    shown = repr(member)
    assert repr(member.own) not in shown
    assert not any(repr(agreed) in shown for agreed in member.agreed.values())


def test_key_agreement_matches_rfc_7748() -> None:
    """The vectors of section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    between = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    publics = [
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ]
    keys = [private_key(alice), private_key(bob)]
    assert [key.public_key().public_bytes_raw().hex() for key in keys] == publics
    for key, public in zip(keys, publics[::-1], strict=True):
        assert agree(key, bytes.fromhex(public)) == extract(between)


def test_derivation_is_one_block_of_hkdf() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    key = bytes(range(32))
    expected = HKDFExpand(SHA256(), 32, json.dumps(["text", 7]).encode()).derive(key)
    assert derive(key, "text", 7) == expected
    assert len({derive(key, *use) for use in [("a", "b"), ("ab",), ("a", 1), ("a", "1"), ("a",)]}) == 5


def test_transcript_is_stable() -> None:
    """A changed byte of any message is a protocol change and needs a new version of its salt."""
    group, members, digest = THIRTY, members_of(THIRTY), hashlib.sha256()
    vectors, lost = vectors_of(group), group.clients[5]
    shared = {client: share(members[client], LABEL.batch) for client in group.clients}
    alive, silent = [client for client in group.clients if client != lost], group.clients[9]
    for client in group.clients:
        digest.update(advertise(secret_of(client), group.run, client))
        for part in (shared[client].shares, shared[client].seeds, shared[client].checks):
            digest.update(np.ascontiguousarray(part))
        digest.update(mask([members[client]], LABEL, shared, vectors[client]))
    for sent in opened_by(group, LABEL, shared, alive, [silent]):
        for part in sent.values():
            digest.update(part)
    assert digest.hexdigest() == "91ffc52a3136ca82cd5770d922c809a041981ff3ec6f0fe50e26e6ffb44f3b87"


@pytest.mark.slow
def test_masked_sum_of_a_thousand_clients_equals_the_plain_sum() -> None:
    group = group_of(degrees(1000))
    vectors, gone = vectors_of(group, 1250), group.clients[::10]
    total = secure_sum(group, vectors, unshared=gone[:30], lost=gone[30:60], silent=gone[60:])
    assert np.array_equal(total, plain_sum(vectors, gone[:60]))


@pytest.mark.slow
def test_chi_squared_test_has_its_false_alarm_rate() -> None:
    """Of 2,000 uniform vectors, 1 in 100 is beyond the 99th percentile."""
    statistics = []
    for call in range(2000):
        content = masked_by(0, np.zeros(2000, np.int64), Label(Batch("first start", call, 1), 0)).view(
            np.uint8
        )
        expected = content.size / 256
        statistics.append(((np.bincount(content, minlength=256) - expected) ** 2 / expected).sum())
    beyond = int((np.array(statistics) > chi2.isf(0.01, 255)).sum())
    assert abs(beyond - 20) <= 5 * math.sqrt(20)
