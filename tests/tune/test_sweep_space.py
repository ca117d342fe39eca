"""Points of a sweep: their values and order, and errors before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from tiny import tiny

from raydr.errors import OutputError, ScenarioError
from raydr.tune.reading import read_stored, read_sweep, shipped, stored
from raydr.tune.schema import Axis, Sweep
from raydr.tune.search import Proposed, search_of
from raydr.tune.space import digest, drawn


def swept(space: Mapping[str, Any], **more: Any) -> Sweep:
    return read_sweep({"name": "swept", "base": tiny(), "space": space, **more})


def values(sweep: Sweep) -> list[dict[str, Any]]:
    search = search_of(sweep)
    found = [search.point(number, {}) for number in range(search.count)]
    return [dict(point.values) for point in found if point is not None]


def test_a_grid_has_every_combination_in_the_order_of_the_file() -> None:
    assert values(swept({"clients.count": [3, 5], "method.landmarks": {"grid": [12, 24]}})) == [
        {"clients.count": clients, "method.landmarks": landmarks}
        for clients in (3, 5)
        for landmarks in (12, 24)
    ]


def test_an_axis_is_left_out_where_its_condition_fails() -> None:
    sweep = swept(
        {
            "method.kind": ["fed-tsne", "sense", "fed-umap"],
            "method.landmarks": {"grid": [12, 24], "when": {"method.kind": ["fed-tsne", "fed-umap"]}},
            "method.anchors": [
                {"grid": [3], "when": {"method.kind": "sense"}},
            ],
            "method.rounds": {"grid": [2], "when": {"method.kind": ["fed-tsne", "fed-umap"]}},
            "method.early_iterations": {"grid": [5], "when": {"method.kind": "fed-tsne"}},
            "method.iterations": {"grid": [5], "when": {"method.kind": "fed-tsne"}},
        }
    )
    found = values(sweep)
    assert [
        (each["method.kind"], each.get("method.landmarks"), each.get("method.anchors")) for each in found
    ] == [
        ("fed-tsne", 12, None),
        ("fed-tsne", 24, None),
        ("sense", None, 3),
        ("fed-umap", 12, None),
        ("fed-umap", 24, None),
    ]
    # SENSE has none of the base's landmarks, rounds and iterations.
    point = search_of(sweep).point(2, {})
    assert point is not None
    assert point.scenario(0).method.kind == "sense"


def test_the_first_alternative_that_holds_is_used() -> None:
    sweep = swept(
        {
            "clients.count": [3, 5],
            "method.landmarks": [
                {"grid": [10], "when": {"clients.count": 3}},
                {"grid": [20, 30]},
            ],
        }
    )
    assert [(each["clients.count"], each["method.landmarks"]) for each in values(sweep)] == [
        (3, 10),
        (5, 20),
        (5, 30),
    ]


def test_points_with_the_same_scenario_are_one() -> None:
    noise = {"privacy.noise.on": ["gradient", "data"], "privacy.noise.level": [0, 0.5]}
    assert [each["privacy.noise.level"] for each in values(swept(noise))] == [0, 0.5, 0.5]


def test_repeats_differ_only_in_their_seed() -> None:
    point = search_of(swept({"clients.count": [3]})).point(0, {})
    assert point is not None
    first, second = point.scenario(0), point.scenario(1)
    assert (first.seed, second.seed) == (0, 1)
    assert second.model_copy(update={"seed": 0}) == first
    assert digest(first) != digest(second)


def test_a_whole_section_may_be_a_value() -> None:
    partitions = [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.5}]
    assert [
        each["clients.partition"] for each in values(swept({"clients.partition": {"grid": partitions}}))
    ] == partitions


class TestDraws:
    RANGES: ClassVar = {
        "uniform": (0.5, 2.0),
        "log_uniform": (1e-3, 10.0),
        "integers": (3, 5),
        "log_integers": (1, 100),
    }

    @pytest.mark.parametrize("sort", RANGES)
    def test_values_cover_their_range(self, sort: str) -> None:
        low, high = self.RANGES[sort]
        axis = Axis.model_validate({sort: (low, high)})
        found = [drawn(axis, "key", 0, sample) for sample in range(2000)]
        assert low <= min(found) <= max(found) <= high
        if sort.endswith("integers"):
            assert {type(value) for value in found} == {int}
            assert {low, high} <= set(found)
        if sort.startswith("log"):  # half are below the geometric mean
            middle = (low * high) ** 0.5
            assert 0.4 < sum(value <= middle for value in found) / 2000 < 0.65

    def test_a_key_has_the_same_draw_for_every_listed_value(self) -> None:
        space = {"clients.count": [3, 5], "method.landmarks": {"integers": [5, 40]}}
        found = values(swept(space, search={"kind": "random", "samples": 4}))
        assert len(found) == 8
        for one, other in zip(found[::2], found[1::2], strict=True):
            assert one["method.landmarks"] == other["method.landmarks"]
        assert len({each["method.landmarks"] for each in found}) > 1

    def test_another_seed_draws_other_values(self) -> None:
        space = {"method.landmarks": {"integers": [5, 100]}}
        one, other = (
            values(swept(space, search={"kind": "random", "samples": 5}, seed=seed)) for seed in (0, 1)
        )
        assert one != other


class TestOptuna:
    SPACE: ClassVar = {
        "method.landmarks": {"log_integers": [5, 100]},
        "method.kind": {"choice": ["fed-tsne", "fed-umap"]},
        "method.perplexity": {"uniform": [2.0, 40.0], "when": {"method.kind": "fed-tsne"}},
        "method.early_iterations": {"grid": [5], "when": {"method.kind": "fed-tsne"}},
        "method.iterations": {"grid": [5], "when": {"method.kind": "fed-tsne"}},
    }

    def proposed(self, samples: int = 24, seed: int = 0) -> Proposed:
        objectives = {"federated.npa_10": "max", "bytes_up": "min"}
        search = {"kind": "optuna", "samples": samples, "at_once": 4}
        found = search_of(swept(self.SPACE, search=search, objectives=objectives, seed=seed))
        assert isinstance(found, Proposed)
        return found

    @staticmethod
    def measure(values: Mapping[str, Any]) -> dict[str, float]:
        return {
            "federated.npa_10": -abs(values["method.landmarks"] - 40.0),
            "bytes_up": float(values["method.kind"] == "fed-tsne"),
        }

    def all(self, search: Proposed, order: Any = None) -> list[dict[str, Any]]:
        measured: dict[int, Mapping[str, float] | None] = {}
        found = []
        for start in range(0, search.count, 4):
            points = [search.point(number, measured) for number in range(start, min(start + 4, search.count))]
            assert None not in points
            assert start + 4 >= search.count or search.point(start + 4, measured) is None
            for point in order(points) if order else points:
                measured[point.number] = None if point.number == 5 else self.measure(point.values)
            found += [dict(point.values) for point in points]
        return found

    def test_proposals_do_not_depend_on_the_order_of_results(self) -> None:
        assert self.all(self.proposed()) == self.all(self.proposed(), order=reversed)

    def test_proposals_depend_on_the_seed_of_the_sweep(self) -> None:
        assert self.all(self.proposed(4)) != self.all(self.proposed(4, seed=1))

    def test_a_resumed_search_proposes_the_same_points(self) -> None:
        whole = self.all(self.proposed())
        measured = {number: self.measure(each) for number, each in enumerate(whole[:12])}
        measured[5] = None
        again = self.proposed()
        assert [dict(again.point(number, measured).values) for number in range(16)] == whole[:16]  # type: ignore[union-attr]

    def test_a_proposal_uses_all_earlier_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import optuna

        results: list[tuple[int, Any]] = []
        add = optuna.study.Study.add_trial

        def add_trial(study: Any, trial: Any) -> None:
            results.append((len(study.get_trials(deepcopy=False)), trial.values))
            add(study, trial)

        monkeypatch.setattr(optuna.study.Study, "add_trial", add_trial)
        found = self.all(self.proposed(12))
        measured = [
            None if number == 5 else list(self.measure(each).values()) for number, each in enumerate(found)
        ]
        assert results == [(number, measured[number]) for before in (0, 4, 8) for number in range(before)]

    def test_proposals_depend_on_results(self) -> None:
        found = [
            [abs(each["method.landmarks"] - 40) for each in self.all(self.proposed(60, seed))]
            for seed in range(5)
        ]
        assert sum(sum(each[-20:]) for each in found) < sum(sum(each[:20]) for each in found)

    def test_conditions_hold(self) -> None:
        for each in self.all(self.proposed()):
            assert ("method.perplexity" in each) == (each["method.kind"] == "fed-tsne")


WRONG = [
    ({"space": {}}, "space"),
    ({"spase": {}}, "spase is not a key (did you mean space?)"),
    (
        {"space": {"clients.count": {"gird": [1]}}},
        "space.clients.count.0.gird is not a key (did you mean grid?)",
    ),
    ({"space": {"clients.count": {"grid": [3], "choice": [4]}}}, "exactly one of grid, choice"),
    ({"space": {"clients.count": {"integers": [5, 3]}}}, "the first must be less than the second"),
    ({"space": {"clients.count": {"log_uniform": [0, 3]}}}, "a logarithmic range must start above 0"),
    ({"space": {"clients.count": {"integers": [3, 5]}}}, "search.kind 'grid' draws nothing"),
    ({"search": {"kind": "random", "samples": 3}}, "no axis is drawn"),
    ({"search": {"kind": "optuna", "samples": 3}, "space": {"clients.count": [3, 4]}}, "Make it a choice"),
    ({"search": {"kind": "greedy"}}, "must be one of grid, random, optuna"),
    (
        {"space": {"method.landmarks": {"grid": [9], "when": {"clients.count": 3}}, "clients.count": [3]}},
        "put clients.count first",
    ),
    ({"repeats": 0}, "repeats is 0: it must be at least 1"),
    ({"objectives": {"npa": "up"}}, "it must be 'min' or 'max'"),
    ({"objectives": {"second": "min"}}, "no measure 'second' (did you mean seconds?)"),
    ({"objectives": {"npa_10": "max"}}, "no measure 'npa_10'"),
    ({"objectives": {"federated": "max"}}, "no measure 'federated'"),
    ({"objectives": {"worst_site.trust": "max"}}, "worst_site.trust: There is no metric 'trust'"),
    (
        {"base": {**tiny(), "metrics": "default"}, "objectives": {"federated.reliable": "max"}},
        "no trial has federated.reliable, because the base's metrics leave it out. Set metrics: [default, reliable] in",
    ),
    (
        {"base": {**tiny(), "metrics": ["npa_10"]}, "objectives": {"central.npa_7": "max"}},
        "Set metrics: [npa_10, npa_7] in the base.",
    ),
    ({"space": {"method.landmarcks": [3]}}, "method.landmarcks is not a key (did you mean landmarks?)"),
    ({"space": {"clients.count": [3, -1]}}, "clients.count is -1: it must be at least 1"),
    ({"base": "no-such"}, "There is no scenario 'no-such'"),
    ({"name": "a/b"}, "name is 'a/b'"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_a_wrong_value_is_refused_by_name(changed: Mapping[str, Any], message: str) -> None:
    content = {"name": "swept", "base": tiny(), "space": {"clients.count": [3]}, **changed}
    with pytest.raises(ScenarioError) as caught:
        search_of(read_sweep(content))
    assert message in str(caught.value)


def test_objectives_that_a_point_computes_are_accepted() -> None:
    base = {**tiny(), "metrics": ["reliable"]}
    for more in (
        {"base": base, "objectives": {"federated.reliable": "max"}},
        {
            "base": {**base, "metrics": "default"},
            "objectives": {"worst_site.npa_10": "max", "seconds": "min"},
        },
        {"space": {"metrics": [["npa_3"]]}, "objectives": {"federated.npa_3": "max"}},
    ):
        content = {"name": "swept", "base": base, "space": {"clients.count": [3]}, **more}
        assert read_sweep(content).objectives == content["objectives"]


def test_an_invalid_point_is_named() -> None:
    with pytest.raises(
        ScenarioError, match=r"The point clients\.count 3, method\.rounds -1: .*method\.rounds"
    ):
        search_of(swept({"clients.count": [3], "method.rounds": [2, -1]}))


def test_set_changes_the_base_but_not_the_space() -> None:
    sweep = read_sweep(
        {"name": "s", "base": tiny(), "space": {"clients.count": [3]}}, {"method.landmarks": 9}
    )
    assert sweep.scenario["method"]["landmarks"] == 9
    with pytest.raises(ScenarioError, match=r"--set clients\.count: the sweep's space"):
        read_sweep({"name": "s", "base": tiny(), "space": {"clients.count": [3]}}, {"clients.count": 9})


def test_quick_changes_base_space_and_repeats() -> None:
    content = {
        "name": "s",
        "base": tiny(),
        "space": {"clients.count": [3, 4, 5], "method.landmarks": [5, 6]},
        "repeats": 4,
        "quick": {"base": {"method.rounds": 1}, "space": {"clients.count": [3]}, "repeats": 2},
    }
    sweep = read_sweep(content, quick=True)
    assert values(sweep) == [{"clients.count": 3, "method.landmarks": count} for count in (5, 6)]
    assert (sweep.repeats, sweep.scenario["method"]["rounds"]) == (2, 1)
    assert read_sweep(content).repeats == 4
    del content["quick"]
    with pytest.raises(ScenarioError, match="does not say what --quick changes"):
        read_sweep(content, quick=True)


def test_a_base_next_to_the_sweeps_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(tiny()))
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({"name": "s", "base": "base.yaml", "space": {"clients.count": [3]}}))
    assert read_sweep(file).scenario["data"] == {"source": "iris"}


def test_the_stored_sweep_equals_the_given_one(tmp_path: Path) -> None:
    sweep = swept(
        {"clients.count": [3], "method.landmarks": {"integers": [5, 9], "when": {"clients.count": [3, 4]}}},
        search={"kind": "random", "samples": 3},
        repeats=2,
        stopping={"kind": "asha", "grace": 2},
        time_budget_s=9.5,
        objectives={"federated.npa_10": "max"},
    )
    (tmp_path / "sweep.yaml").write_text(stored(sweep))
    assert read_stored(tmp_path / "sweep.yaml") == sweep


def test_a_sweep_of_another_version_is_not_resumed(tmp_path: Path) -> None:
    text = stored(swept({"clients.count": [3]}))
    (tmp_path / "sweep.yaml").write_text(text.replace("raydr: ", "raydr: 9", 1))
    with pytest.raises(OutputError, match=r"was started by raydr 9.* Resume it with raydr 9"):
        read_stored(tmp_path / "sweep.yaml")


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("quick", [False, True])
def test_every_point_of_the_shipped_sweeps_is_valid(name: str, quick: bool) -> None:
    sweep = read_sweep(name, quick=quick)
    assert sweep.name == name
    assert search_of(sweep).count > 0
