"""Each client has its own actor if they fit; a line says whether they do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raydr.actors.packing import ACTOR_BYTES, ACTORS_PER_CORE, actors_for, pack, seating
from raydr.front.progress_bars import heard_on_terminal
from raydr.journal import Seated, StageStarted

PLENTY = 2**50


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_clients_share_actors_if_they_outnumber_the_cores(cores: int) -> None:
    most = ACTORS_PER_CORE * cores
    for clients in range(1, most + 1):
        assert actors_for(clients, "auto", cores, PLENTY) == clients
    for clients in (most + 1, 100 * most):
        assert actors_for(clients, "auto", cores, PLENTY) == cores


@pytest.mark.parametrize("rows_bytes", [0, 2**30])
def test_clients_share_actors_if_actors_need_a_quarter_of_the_memory(rows_bytes: int) -> None:
    just_enough = 4 * (10 * ACTOR_BYTES + rows_bytes)
    assert actors_for(10, "auto", 2, just_enough, rows_bytes) == 10
    assert actors_for(10, "auto", 2, just_enough - 4, rows_bytes) == 2
    assert actors_for(11, "auto", 2, just_enough, rows_bytes) == 2


def test_there_are_never_more_actors_than_clients() -> None:
    for clients in range(1, 40):
        for packing in ("auto", "per-client", 1, 3, 1000):
            for memory in (0, 2**30, PLENTY):
                actors = actors_for(clients, packing, 4, memory)  # type: ignore[arg-type]
                assert 1 <= actors <= clients
                shared = pack(clients, actors)
                assert [client for part in shared for client in part] == list(range(clients))
                assert all(shared)


def test_a_stated_packing_is_used() -> None:
    assert actors_for(1000, "per-client", 1, 0) == 1000
    assert actors_for(1000, 7, 1, 0) == 7


def test_clients_that_train_as_one_share_actors() -> None:
    assert seating(10, "auto", 2, PLENTY, batched=True).actors == 2
    assert seating(10, "per-client", 2, PLENTY, batched=True).actors == 10


@pytest.mark.parametrize(
    ("seats", "line"),
    [
        (seating(10, "auto", 2, 2**35), "10 clients in 10 actors and a coordinator"),
        (seating(1, "auto", 2, 0), "1 client in 1 actor and a coordinator"),
        (seating(1000, 4, 2, 0), "1,000 clients in 4 actors and a coordinator"),
        (
            seating(33, "auto", 2, PLENTY),
            "33 clients in 2 actors and a coordinator, packed: one each would be more than 16 per core",
        ),
        (
            seating(1000, "auto", 2, 2**35),
            "1,000 clients in 2 actors and a coordinator, packed: one each would need 97.7 GiB, and a quarter of the"
            " memory is 8.0 GiB",
        ),
        (
            seating(10, "auto", 2, PLENTY, batched=True),
            "10 clients in 2 actors and a coordinator, packed: runtime.batch_clients trains the clients of one actor"
            " together",
        ),
        (seating(2, "auto", 2, 0, batched=True), "2 clients in 2 actors and a coordinator"),
    ],
)
def test_the_line_names_actors_and_the_reason_for_packing(seats: object, line: str) -> None:
    assert seats.line == line  # type: ignore[attr-defined]


def test_the_line_is_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with heard_on_terminal() as listener:
        listener(Seated("10 clients in 10 actors and a coordinator"))
        listener(StageStarted("clients"))
    assert capsys.readouterr().err.splitlines() == ["10 clients in 10 actors and a coordinator"]


def test_the_packing_rule_does_not_import_ray() -> None:
    script = "import sys, raydr.actors.packing; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
