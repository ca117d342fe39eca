"""``preset: published`` against P2's description, line by line: what each says, and what a client then does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from inline_federations import federate
from tiny import tiny_file, tiny_run, tiny_scenario

import raydr
from raydr.arrays import FloatArray, Int64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation
from raydr.federation.streams import client_stream
from raydr.front.cli import status
from raydr.methods import METHODS
from raydr.methods.fedne import networks
from raydr.methods.fedne.baselines import GlobalNE, LocalNE
from raydr.methods.fedne.clients import (
    LARGEST_LOSS,
    Change,
    TrainRequest,
    local_task,
    objective_of,
    train_locally,
)
from raydr.methods.fedne.edges import local_neighbors, schedule, with_mixed
from raydr.methods.fedne.encoder import Architecture, initial_weights
from raydr.methods.fedne.fedne import FedAvgNE, FedNE, FedProxNE
from raydr.methods.fedne.flops import (
    encoded_rows,
    felt_operations,
    fitted_operations,
    mixing_operations,
)
from raydr.methods.fedne.loss import attraction, repulsion
from raydr.methods.fedne.round_state import ControlVariates, RoundState
from raydr.methods.fedne.server import train_request
from raydr.methods.fedne.settings import PUBLISHED, ContrastiveEncoder, PresetSettings
from raydr.methods.fedne.training import Batches, Local, Objective, batch_loss, train
from raydr.robust import Mean

P2 = FedNE(preset="published")
SMALL: dict[str, Any] = {"preset": "published", "hidden": (16, 8), "rounds": 3, "batch": 32, "neighbors": 4}
BASELINES: tuple[type[PresetSettings], ...] = (FedAvgNE, FedProxNE, LocalNE, GlobalNE)

DESCRIBED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("3.1 (1)", "repulsion is the logarithm of 1 - phi, to which nothing is added", {"softening": 0.0}),
    ("3.1 (1)", "pairs that repel are drawn uniformly, whatever edge they are of", {"negatives_from": "rows"}),
    ("3.2", "clients start from the server's encoder and get nothing else", {"control_variates": False}),
    (
        "3.2 (4)",
        "the server takes the mean of weights, by numbers of rows",
        {"aggregation": Mean(), "server_optimizer": "fedavg", "server_learning_rate": 1.0},
    ),
    ("3.2 (4)", "and takes it exactly", {"update_bits": 64}),
    ("4.1 (8)", "a client's surrogate is a network of a place on the map", {"surrogate": "mlp"}),
    ("4.1", "places to learn it at are those of a grid", {"surrogate_points": "grid"}),
    ("4.2", "graphs are of the k nearest neighbours, all of which attract", {"local_neighbors": None}),
    ("4.2 (9)", "what is mixed are rows, and neighbours are sought among both kinds", {"mixed": "rows"}),
    ("4.3 (10)", "each client hears the surrogates of all others", {"surrogates_left_out": 0.0}),
    ("5.1", "rows are the raw data; scaling is not mentioned", {"standardise": False}),
    ("5.1", "k = 7", {"neighbors": 7}),
    ("5.1", "Adam (whose authors add 1e-8), its learning rate annealed", {"adam_floor": 1e-8, "schedule": "steps"}),
    ("5.1, A.1", "batches of 512 edges", {"batch": 512}),
    ("5.1", "one local epoch, with all its batches", {"local_epochs": 1, "local_steps": None}),
    ("5.1, B.2", "Beta's alpha is 0.2", {"mixing": 0.2}),
    ("A.1", "learning rate 0.001, for MNIST and Fashion-MNIST", {"learning_rate": 1e-3}),
    ("A.1", "less by 0.1 at 30% and at 60% of the rounds", {"decay": 0.1}),
    ("A.1", "b = 5 negatives of an edge", {"negatives": 5}),
    ("A.1, B.6", "surrogates come in at 30% of the rounds", {"surrogate_from": 0.3}),
    ("A.2, B.5", "and are trained in every round", {"surrogate_every": 1}),
    ("B.3", "the grid's step is 0.3", {"grid_step": 0.3}),
    ("1", "nothing is shared of the data, so nothing to begin with", {"start": "random", "prototypes": None}),
)  # fmt: skip
"""Section, its statement in other words, and the statement in settings."""
OF_THE_CODE = {"hidden": (500, 200, 100), "rounds": 500}
"""From the authors' code for MNIST: P2 (5.1) gives the number of widths, and no rounds."""


# The description


@pytest.mark.parametrize(("section", "statement", "meant"), DESCRIBED, ids=[line[1] for line in DESCRIBED])
def test_each_line_of_the_papers_description_is_a_setting(
    section: str, statement: str, meant: dict[str, Any]
) -> None:
    for key, value in meant.items():
        assert getattr(P2, key) == value, (section, statement)


def test_preset_sets_exactly_what_the_paper_describes() -> None:
    described = {key: value for _, _, meant in DESCRIBED for key, value in meant.items()}
    assert described | OF_THE_CODE == dict(PUBLISHED)
    assert len(P2.hidden) == 3


def test_rate_falls_at_30_and_60_percent_and_surrogates_start_at_30() -> None:
    assert [P2.rate(round, late=10) for round in (1, 10, 500)] == [
        P2.rate(round) for round in (451, 451, 500)
    ]
    rates = [P2.rate(round) for round in range(1, 501)]
    assert rates == pytest.approx([1e-3] * 150 + [1e-4] * 150 + [1e-5] * 200)
    assert P2.first_surrogate_round == 151


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_train_alike_without_mixing(baseline: type[PresetSettings]) -> None:
    settings = baseline(preset="published")
    shared = PUBLISHED.keys() & baseline.model_fields.keys()
    assert {key: getattr(settings, key) for key in shared} == {key: PUBLISHED[key] for key in shared}
    assert {"softening", "standardise", "negatives_from", "adam_floor", "rounds", "hidden"} <= shared
    assert not {"mixing", "surrogate"} & baseline.model_fields.keys()


# Presets


def test_explicit_settings_override_the_preset() -> None:
    usual = FedNE()
    assert FedNE(preset=None) == usual
    assert {key for key, value in PUBLISHED.items() if getattr(usual, key) != value} > {"mixed", "softening"}
    for key, value in (
        ("learning_rate", 3e-3),
        ("softening", 1e-3),
        ("rounds", 200),
        ("hidden", (100, 100, 100)),
    ):
        given = FedNE(**{"preset": "published", key: value})
        assert given == P2.model_copy(update={key: value})
    scenario = tiny_scenario(method={"kind": "fedne", "preset": "published"}, method__grid_step=0.5)
    assert scenario.method == P2.model_copy(update={"grid_step": 0.5})


def test_scenario_in_run_folder_holds_every_value_and_repeats_it(tmp_path: Path) -> None:
    """With the preset's name next to the values or without it."""
    method = {"kind": "fedne", "preset": "published", "hidden": [8], "rounds": 4, "learning_rate": 3e-3}
    file = tiny_file(tmp_path, method=method)
    first, again, without, usual = (tmp_path / name for name in ("first", "again", "without", "usual"))
    assert status(["run", str(file), "--out", str(first), "-q"]) == 0
    written = yaml.safe_load((first / "scenario.yaml").read_text())
    assert written["method"]["learning_rate"] == 3e-3
    assert {key: written["method"][key] for key in ("mixed", "softening", "surrogate_from", "standardise")} == {
        "mixed": "rows", "softening": 0.0, "surrogate_from": 0.3, "standardise": False,
    }  # fmt: skip
    assert status(["run", str(first / "scenario.yaml"), "--out", str(again), "-q"]) == 0
    assert (again / "scenario.yaml").read_bytes() == (first / "scenario.yaml").read_bytes()
    command = ["run", str(first / "scenario.yaml"), "--set", "method.preset=null", "-q", "--out"]
    assert status([*command, str(without)]) == 0
    assert status([*command, str(usual), "--set", "method.mixed=edges"]) == 0
    maps = [raydr.Result(folder).embedding.tobytes() for folder in (first, again, without, usual)]
    assert maps[0] == maps[1] == maps[2] != maps[3]


@pytest.mark.parametrize(
    ("method", "statement"),
    [
        ({"kind": "fedne", "standardise": False}, "start: principal needs rows centred on their mean"),
        ({"kind": "fedavg-ne", "standardise": False, "bounds": [0, 1]}, "bounds scale the rows"),
        ({"kind": "landmark-ne", "preset": "published"}, "preset"),
    ],
)
def test_incompatible_settings_are_refused(method: dict[str, Any], statement: str) -> None:
    with pytest.raises(ScenarioError, match=statement):
        tiny_scenario(method=method)


def test_noise_on_updates_needs_scaled_rows(tmp_path: Path) -> None:
    noise = {"on": "update", "unit": "client", "epsilon": 1.0, "clip": 1.0}
    with pytest.raises(ScenarioError, match=r"leave method\.standardise: false out"):
        tiny_run(
            tmp_path / "run", method={"kind": "fedavg-ne", "preset": "published"}, privacy={"noise": noise}
        )


# Clients


def blobs(sizes: tuple[int, ...] = (40, 1, 25, 2, 0, 30), features: int = 5) -> list[FloatArray]:
    random = np.random.default_rng(0)
    return [6 * random.normal(size=features) + random.normal(size=(size, features)) for size in sizes]


def asked(parts: list[FloatArray], settings: FedNE | FedAvgNE) -> TrainRequest:
    """Return a training request of a round before surrogates."""
    federation = federate(parts)
    weights = settings.first_weights(federation)
    state = RoundState.first(weights, ControlVariates.none())
    return train_request(settings.training(federation), state, 1, 1e-3)


def replies(federation: Federation) -> set[str]:
    """Return the clients' replies without their indices."""
    kinds = {entry.kind for entry in federation.ledger.entries.values() if entry.direction == "up"}
    return kinds - {"Enrolment"}


def by_brute_force(rows: FloatArray, k: int) -> Int64Array:
    apart = ((rows[:, None].astype(np.float64) - rows) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1)[:, :k]


def edges_of(local: Local) -> Int64Array:
    live = local.schedule.live > 0
    pairs = np.column_stack([local.schedule.heads[live], local.schedule.tails[live]])
    return pairs[np.lexsort(pairs.T[::-1])]


@pytest.mark.parametrize("index", [0, 2, 3])
def test_client_graph_has_as_many_mixed_rows_as_own_rows(index: int) -> None:
    """P2 (9) for each row and one random neighbour; the graph holds every edge of both once."""
    parts, settings = blobs(), FedNE(**SMALL)
    request, rows = asked(parts, settings), parts[index]
    count = len(rows)
    local = local_task(Client(index=index, rows=rows, seed=0, round=2), request)
    assert local.rows.shape == (2 * count, 5)
    np.testing.assert_array_equal(local.rows[:count], rows)
    nearest = by_brute_force(rows, min(4, count - 1))
    for row, mixed, near in zip(rows, local.rows[count:], rows[nearest], strict=True):
        shares = ((mixed - near) * (row - near)).sum(axis=1) / ((row - near) ** 2).sum(axis=1)
        distance = np.abs(near + shares[:, None] * (row - near) - mixed).max(axis=1)
        assert (distance < 1e-9).any()
        assert -1e-9 <= shares[distance.argmin()] <= 1 + 1e-9
    graph = by_brute_force(local.rows, min(4, 2 * count - 1))
    expected = np.column_stack([np.repeat(np.arange(2 * count), graph.shape[1]), graph.ravel()])
    np.testing.assert_array_equal(edges_of(local), expected[np.lexsort(expected.T[::-1])])
    assert (local.schedule.share == 1.0).all()


def test_mixed_rows_change_each_round_and_survive_a_restart() -> None:
    parts, settings = blobs(), FedNE(**SMALL)
    request, steady = asked(parts, settings), Client(index=0, rows=parts[0], seed=0, round=1)
    made = []
    for round in (1, 2, 1):
        steady.round = round
        made.append(local_task(steady, request).rows.tobytes())
    assert made[0] == made[2] != made[1]
    assert local_task(Client(index=0, rows=parts[0], seed=0, round=2), request).rows.tobytes() == made[1]
    random, nearest = client_stream(0, 0, 2, "mixed rows"), local_neighbors(parts[0], 4)
    assert with_mixed(parts[0], nearest, 0.2, random).tobytes() == made[1]


def test_mixing_shares_are_beta_and_partners_uniform() -> None:
    line = np.arange(4.0)[:, None]
    nearest, random = np.array([[1, 2], [0, 2], [1, 3], [2, 1]]), np.random.default_rng(0)
    mixed = np.concatenate([with_mixed(line, nearest, 0.2, random)[4:].T for _ in range(8000)])[:, 0]
    partners = np.where(mixed > 1.0, 2, 1)  # of row 0, where it is known
    share = np.where(mixed > 1.0, 1 - mixed / 2, np.nan)
    share = share[partners == 2]  # beyond 1: half of Beta's mass is below 1/2, by symmetry
    assert len(share) == pytest.approx(8000 * 0.5 * 0.5, rel=0.05)
    both = np.concatenate([share, 1 - share])
    assert both.var() == pytest.approx(0.25 / 1.4, abs=0.01), "Beta(0.2, 0.2)"


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_mixed_rows_lie_between_their_ends(offset: float) -> None:
    rows = offset + np.random.default_rng(0).normal(size=(50, 3))
    both = with_mixed(rows, local_neighbors(rows, 4), 0.2, np.random.default_rng(1))
    assert both.dtype == rows.dtype
    assert (both.max(axis=0) <= rows.max(axis=0)).all()
    assert (both.min(axis=0) >= rows.min(axis=0)).all()
    distance = np.abs(both[50:, None] - rows).max(axis=2).min(axis=1)
    assert np.median(distance) < 1.0


def test_row_without_neighbours_is_not_mixed() -> None:
    request = asked(blobs(), FedNE(**SMALL))
    for rows in (np.ones((1, 5)), np.ones((0, 5))):
        local = local_task(Client(index=1, rows=rows, seed=0, round=1), request)
        assert local.rows.tobytes() == rows.tobytes()
        assert local.schedule.steps == 0
    twins = local_task(Client(index=1, rows=np.ones((2, 5)), seed=0, round=1), request)
    assert twins.rows.tobytes() == np.ones((4, 5)).tobytes()
    assert len(edges_of(twins)) == 4 * 3


def test_negatives_are_uniform_over_own_and_mixed_rows() -> None:
    settings = FedNE(**SMALL | {"negatives": 400})
    local = local_task(Client(index=2, rows=blobs()[2], seed=0, round=1), asked(blobs(), settings))
    dealt = local.schedule
    assert dealt.from_rows
    live = dealt.live > 0
    heads, drawn = dealt.heads[live], dealt.negatives[live]
    assert (drawn != heads[:, None]).all()
    counts = np.bincount(drawn.ravel(), minlength=50)
    assert len(counts) == 50
    assert counts.min() > 0.9 * counts.mean()
    assert counts.max() < 1.1 * counts.mean()


@pytest.mark.parametrize("mixing", [0.2, None])
@pytest.mark.parametrize("counts", [(60,), (60, 33)])
def test_heads_are_repelled_by_the_drawn_rows(counts: tuple[int, ...], mixing: float | None) -> None:
    """Whether heads are mixed or not, alone and stacked."""
    clients = []
    for count in counts:
        rows = np.random.default_rng(count).normal(size=(count, 5)).astype(np.float32)
        dealt = schedule(
            local_neighbors(rows, 4), batch=32, epochs=1, negatives=3, mixing=mixing, from_rows=True,
            random=np.random.default_rng(0),
        )  # fmt: skip
        clients.append(Local(rows, dealt))
    batches = Batches(clients, "cpu")
    for step in range(batches.steps):
        rows = batches.rows(step)
        heads, tails = batches.ends(step, rows)
        drawn = batches.repelling(step, rows, tails)
        for place, client in enumerate(clients):
            if step >= client.schedule.steps:
                continue
            dealt = client.schedule
            width, share = dealt.heads.shape[1], dealt.share[step][:, None]
            mixed = share * client.rows[dealt.heads[step]] + (1 - share) * client.rows[dealt.partners[step]]
            np.testing.assert_allclose(heads[place, :width], mixed, atol=1e-6)
            np.testing.assert_array_equal(tails[place, :width], client.rows[dealt.tails[step]])
            np.testing.assert_array_equal(drawn[place, :width], client.rows[dealt.negatives[step]])


def test_loss_equals_the_papers() -> None:
    """(1) over the edges of a batch, by a double loop: no softening, b times the mean over what is drawn."""
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    dealt = schedule(
        local_neighbors(rows, 4), batch=64, epochs=1, negatives=5, mixing=None, from_rows=True,
        random=np.random.default_rng(0),
    )  # fmt: skip
    architecture = Architecture(5, (8,))
    weights = torch.from_numpy(initial_weights(architecture, np.random.default_rng(0)))[None]
    first, offset, last, end = architecture.parts(weights[0].numpy())
    places = (np.maximum(rows @ first + offset, 0.0) @ last + end).astype(np.float64)

    def phi(one: int, other: int) -> float:
        return 1.0 / (1.0 + float(((places[one] - places[other]) ** 2).sum()))

    total = 0.0
    for head, tail, drawn in zip(dealt.heads[0], dealt.tails[0], dealt.negatives[0], strict=True):
        total -= np.log(phi(head, tail))
        total -= 5 * np.mean([np.log(1.0 - phi(head, other)) for other in drawn])
    objective = Objective(5.0, np.ones(1, np.float32), softening=0.0)
    found = batch_loss(architecture, weights, Batches([Local(rows, dealt)], "cpu"), 0, objective)
    assert float(found) == pytest.approx(total / len(dealt.heads[0]), rel=1e-4)


def test_unsoftened_repulsion_ignores_coincident_pairs() -> None:
    squared = torch.tensor([1e-6, 1e-3, 1.0, 50.0, 1e6], dtype=torch.float64)
    torch.testing.assert_close(repulsion(squared, 0.0), -torch.log(squared / (1.0 + squared)))
    places = torch.zeros((2, 2), requires_grad=True)
    felt = repulsion(((places[0] - places[1]) ** 2).sum(), 0.0)
    (gradient,) = torch.autograd.grad(felt, places)
    assert float(felt.detach()) == pytest.approx(-np.log(1e-12), rel=1e-3)
    assert not gradient.any()


def test_softening_of_a_half_equals_negative_sampling() -> None:
    """It has phi / (1 + phi) for phi on a map in units of sqrt(2): repulsion and its gradient are equal."""
    squared = torch.linspace(0.0, 40.0, 81, dtype=torch.float64, requires_grad=True)
    similar = 1.0 / (2.0 + squared)
    torch.testing.assert_close(repulsion(squared / 2.0, 0.5), -torch.log1p(-similar))
    ours, theirs = attraction(squared / 2.0), -torch.log(similar)
    torch.testing.assert_close(
        torch.autograd.grad(ours.sum(), squared), torch.autograd.grad(theirs.sum(), squared)
    )


def test_adam_equals_the_original() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    dealt = schedule(
        local_neighbors(rows, 4), batch=32, epochs=1, negatives=5, mixing=None, from_rows=True,
        random=np.random.default_rng(0),
    )  # fmt: skip
    architecture, objective = Architecture(5, (8,)), Objective(5.0, np.ones(1, np.float32), softening=0.0)
    weights = initial_weights(architecture, np.random.default_rng(0))
    trained = train(
        architecture, weights, [Local(rows, dealt)], objective, learning_rate=1e-3, floor=P2.adam_floor
    )
    flat = torch.from_numpy(weights.copy())[None].requires_grad_()
    adam, batches = torch.optim.Adam([flat], lr=1e-3), Batches([Local(rows, dealt)], "cpu")
    for step in range(batches.steps):
        adam.zero_grad()
        batch_loss(architecture, flat, batches, step, objective).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
    # Without the last bias, which moves the whole map: its gradient is rounding error, and so are its steps.
    np.testing.assert_allclose(trained.weights[:, :-2], flat.detach().numpy()[:, :-2], atol=1e-5)


# The server


def test_published_round_is_the_mean_of_local_training_on_raw_rows() -> None:
    """P2 (4) on rows far from 0 and of any length; clients send no moments, axes or prototypes."""
    parts = [3.0 * part + 20.0 for part in blobs()]
    settings = FedNE(**SMALL | {"rounds": 1, "surrogate": "none"})
    federation = federate(parts)
    model = METHODS["fedne"].serve(federation, settings).model
    assert replies(federation) == {"Change", "Positions"}
    assert not model["encoder.shift"].any()
    assert (model["encoder.factor"] == 1.0).all()
    request = asked(parts, settings)
    expected = request.weights.astype(np.float64)
    for index, part in enumerate(parts):
        change = train_locally(Client(index=index, rows=part, seed=0, round=1), request).weights
        expected += len(part) / sum(map(len, parts)) * change
    flat = Architecture(5, settings.hidden).flat(
        {name.removeprefix("encoder."): values for name, values in model.items()}
    )
    np.testing.assert_allclose(flat, expected, atol=1e-7)
    assert np.abs(flat - request.weights).max() > 1e-4


@pytest.mark.parametrize("kind", [FedAvgNE, FedProxNE, LocalNE, GlobalNE])
def test_published_baselines_do_not_standardise(kind: type[ContrastiveEncoder]) -> None:
    federation = federate(blobs())
    settings = kind(**SMALL)  # type: ignore[arg-type]
    found = METHODS[settings.kind].serve(federation, settings)  # type: ignore[attr-defined]
    assert np.isfinite(found.embedding).all()
    assert replies(federation) <= {"Change", "Positions", "Loss", "Rows"}


def test_published_encoder_places_raw_rows() -> None:
    parts = [3.0 * part + 20.0 for part in blobs()]
    settings = FedNE(**SMALL)
    found = METHODS["fedne"].serve(federate(parts), settings)
    placed = settings.transform(found.model, np.concatenate(parts))
    np.testing.assert_allclose(placed, found.embedding, atol=1e-5 * np.abs(found.embedding).max())


def test_surrogates_continue_from_their_last_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A.2: fine-tuned by Adam at 0.001, on a grid of step 0.3 around the current map."""
    trainings: list[tuple[bytes, bytes, float, float]] = []
    original = networks.fit_surrogate

    def recorded(start: Any, queries: Any, values: Any, *, learning_rate: float, **more: Any) -> Any:
        found = original(start, queries, values, learning_rate=learning_rate, **more)
        steps = np.diff(np.unique(queries[:, 0]))
        trainings.append((start.tobytes(), found.tobytes(), learning_rate, float(np.median(steps))))
        return found

    monkeypatch.setattr(networks, "fit_surrogate", recorded)
    parts = blobs((20, 25))
    federation = federate(parts)
    METHODS["fedne"].serve(federation, FedNE(**SMALL | {"rounds": 10}))
    counts = {entry.kind: entry.count for entry in federation.ledger.entries.values()}
    assert counts["Surrogate"] == len(trainings) == 2 * 7
    assert "Density" not in counts
    for before, after in zip(trainings[:-2], trainings[2:], strict=True):
        assert after[0] == before[1]
    assert {rate for _, _, rate, _ in trainings} == {1e-3}
    assert [step for *_, step in trainings] == pytest.approx([0.3] * 14, abs=1e-3)


def test_surrogates_and_own_pairs_are_weighted_by_rows() -> None:
    """(10): |D_m| / |D| before the client's own repulsion, |D_m'| / |D| before each other's surrogate."""
    parts = blobs((20, 30, 50))
    request = asked(parts, FedNE(**SMALL))
    alone = objective_of([Client(index=1, rows=parts[1], seed=0)], [request])
    assert alone.surrogate is None
    assert alone.own_share is not None
    assert alone.own_share.tolist() == [1.0], "without surrogates as in (3)"
    level = np.zeros((3, networks.PARAMETERS), np.float32)
    level[:, -1] = 1.0, 10.0, 100.0  # the value of each network everywhere
    request = replace(request, surrogates=level, shares=np.array([0.2, 0.3, 0.5], np.float32))
    objective = objective_of([Client(index=1, rows=parts[1], seed=0)], [request])
    assert objective.own_share is not None
    assert objective.surrogate is not None
    assert objective.own_share.tolist() == pytest.approx([0.3])
    assert float(objective.surrogate(torch.zeros((1, 1, 2)))) == pytest.approx(0.2 * 1.0 + 0.5 * 100.0)
    assert (objective.negatives, objective.softening) == (5.0, 0.0)


@pytest.mark.parametrize("value", [-1e9, 1e9])
def test_loss_by_a_surrogate_stays_within_its_declared_range(value: float) -> None:
    """A surrogate network far from its training points has any value, positive or negative."""
    parts = blobs((20, 30))
    network = np.zeros((1, networks.PARAMETERS), np.float32)
    network[:, -1] = value
    request = replace(
        asked(parts, FedNE(**SMALL)),
        surrogates=np.concatenate([network, network]),
        shares=np.array([0.4, 0.6], np.float32),
    )
    change = train_locally(Client(index=0, rows=parts[0], seed=0), request)
    assert change.loss == LARGEST_LOSS if value > 0 else 0.0 < change.loss < 100.0
    assert Change.ranges(request, len(parts[0]))["loss"].largest == LARGEST_LOSS


def test_plan_counts_mixed_rows_and_their_neighbours() -> None:
    usual, mixed = FedNE(**SMALL | {"mixed": "edges"}), FedNE(**SMALL)
    assert [mixed.trained_rows(rows) for rows in (0, 1, 2, 30)] == [0, 1, 4, 60]
    assert usual.trained_rows(30) == FedNE(**SMALL | {"mixing": None}).trained_rows(30) == 30
    assert mixing_operations(usual, [30], 5) == 0
    assert mixing_operations(mixed, [60], 5) == 4 * mixing_operations(mixed, [30, 1], 5) > 0


@pytest.mark.parametrize("mixing", [{"mixed": "edges"}, {"mixed": "rows"}, {"mixing": None}], ids=str)
@pytest.mark.parametrize("negatives_from", ["batch", "rows"])
def test_plan_counts_the_rows_that_batches_encode(mixing: dict[str, Any], negatives_from: str) -> None:
    """A plan once took mixed heads for rows that are encoded once: trials took twice the planned time."""
    settings = FedNE(**SMALL | mixing | {"negatives_from": negatives_from})
    parts = blobs((6, 60))
    for part in parts:
        request = asked(parts, settings)
        batches = Batches([local_task(Client(index=0, rows=part, seed=0), request)], "cpu")
        encoded = np.mean([batches.rows(step).shape[1] for step in range(batches.steps)])
        assert encoded_rows(settings, settings.trained_rows(len(part))) == pytest.approx(encoded, rel=0.15)
    assert encoded_rows(settings, 1) == 0


def test_plan_counts_surrogate_networks() -> None:
    settings = FedNE(**SMALL)
    assert felt_operations(settings, [60, 60], 0) == 0
    assert felt_operations(settings, [60, 60], 20) == 40 * felt_operations(settings, [60], 1) > 0
    assert fitted_operations([300.0, 100.0], 10) == 20 * fitted_operations([200.0], 1) > 0
    fine, local = FedNE(**SMALL, grid_step=0.1), FedNE(**SMALL, surrogate_points="local")
    assert local.fitted_points(500) == 500 < settings.fitted_points(500) < fine.fitted_points(500) / 8.9
