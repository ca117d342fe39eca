"""Random streams have names: equal names give equal numbers everywhere, other names give others."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from inline_federations import federate

from raydr.federation import Client
from raydr.federation.streams import client_stream, server_stream

PURPOSES = ("noise", "participation", "objective", "")


def test_stream_numbers_are_stable() -> None:
    """A run folder's scenario repeats the run bit for bit, so these words may never change."""
    client, server = client_stream(0, 1, 2, "noise"), server_stream(0, 2, "noise")
    assert client.bit_generator.random_raw(2).tolist() == [3417049127538172066, 7329916065000900679]
    assert server.bit_generator.random_raw(2).tolist() == [3076787323779089498, 1877782951252540469]


@pytest.mark.parametrize("salt", ["1", "2"])
def test_new_process_draws_the_same_numbers(salt: str) -> None:
    """Python salts ``hash`` in every process; the salt must not matter."""
    code = (
        "from raydr.federation.streams import client_stream, server_stream\n"
        "server_stream(9, 9, 'something drawn before')\n"
        "print(client_stream(3, 1, 4, 'ünïcode').standard_normal(5).tobytes().hex())\n"
        "print(server_stream(3, 4, 'ünïcode').standard_normal(5).tobytes().hex())\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": salt}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    here = [client_stream(3, 1, 4, "ünïcode"), server_stream(3, 4, "ünïcode")]
    assert found.stdout.split() == [stream.standard_normal(5).tobytes().hex() for stream in here]


def test_every_name_has_its_own_stream() -> None:
    """The cases include permuted names, and the server's names next to those of client 0."""
    drawn = {
        ("client", *name): client_stream(*name).bit_generator.random_raw(4).tobytes()
        for name in itertools.product((0, 1, 2, 2**32 - 1), (0, 1, 2), (0, 1, 2), PURPOSES)
    } | {
        ("server", *name): server_stream(*name).bit_generator.random_raw(4).tobytes()
        for name in itertools.product((0, 1, 2, 2**32 - 1), (0, 1, 2), PURPOSES)
    }
    words = [draw[start : start + 8] for draw in drawn.values() for start in range(0, 32, 8)]
    assert len(set(words)) == len(words) == 4 * (4 * 3 * 3 * 4 + 4 * 3 * 4)


def test_streams_of_neighbouring_names_are_uncorrelated() -> None:
    names = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1)]
    count = 20_000
    drawn = [client_stream(*name, purpose).standard_normal(count) for name in names for purpose in ("a", "b")]
    drawn += [server_stream(0, round, "a").standard_normal(count) for round in (0, 1)]
    correlations = np.asarray(np.corrcoef(drawn))
    np.fill_diagonal(correlations, 0.0)
    # 66 pairs of deviation 1 / sqrt(count) each
    assert np.abs(correlations).max() < 4.5 / np.sqrt(count)


def test_streams_do_not_depend_on_earlier_draws() -> None:
    first = client_stream(5, 1, 1, "noise").random(3)
    client_stream(5, 1, 2, "noise").random(100)
    server_stream(5, 1, "noise").random(100)
    assert np.array_equal(client_stream(5, 1, 1, "noise").random(3), first)


def test_numpy_global_state_is_unchanged() -> None:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    client_stream(0, 0, 0, "noise").random(10)
    server_stream(0, 0, "noise").random(10)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert str(before) == str(after)


def test_client_and_federation_use_the_stream_of_the_round() -> None:
    client = Client(index=3, rows=np.zeros((1, 1)), seed=8, round=2)
    assert client.stream("a").random() == client_stream(8, 3, 2, "a").random()
    federation = federate([np.zeros((1, 1))], seed=8)
    assert federation.stream("a").random() == server_stream(8, 0, "a").random()
    for number in federation.rounds(2):
        assert federation.stream("a").random() == server_stream(8, number, "a").random()
