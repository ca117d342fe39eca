"""Scenario files: what is accepted, and the error for anything else."""

from __future__ import annotations

import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Wards, tiny, tiny_file, tiny_scenario

from raydr.data import load
from raydr.errors import RaydrError, ScenarioError
from raydr.methods import METHODS, MethodSettings
from raydr.metrics import METRICS
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.schema.reading import dump, parse_override, read, shipped
from raydr.scenarios.schema.rules import pooled_map_that_can_be_drawn
from raydr.scenarios.schema.scenario import Scenario

fifty = settings(max_examples=50)


def refusal(content: Any, **overrides: Any) -> str:
    """Return the one paragraph of the error."""
    with pytest.raises(ScenarioError) as caught:
        read(content, {key.replace("__", "."): value for key, value in overrides.items()})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "proposed"),
    [
        ("methd", "method"),
        ("data.surce", "source"),
        ("method.landmark", "landmarks"),
        ("method.perplexty", "perplexity"),
        ("runtime.acters", "actors"),
        ("clients.partitoin", "partition"),
    ],
)
def test_misspelt_key_is_named_with_path_and_suggestion(key: str, proposed: str) -> None:
    message = refusal(tiny(), **{key: 3})
    assert f"{key} is not a key (did you mean {proposed}?)" in message


def test_misspelt_partition_key_lists_keys_of_its_kind() -> None:
    message = refusal(tiny(), clients__partition={"kind": "dirichlet", "alpah": 0.5})
    assert "clients.partition.alpah is not a key (did you mean alpha?)" in message
    assert message.endswith("clients.partition has kind, alpha, min_rows.")


def test_misspelt_key_in_a_list_item_names_the_item_number() -> None:
    sites = [{"path": "a.csv"}, {"path": "b.csv", "nod": "left"}]
    message = refusal(tiny() | {"clients": {"sites": sites}})
    assert (
        "clients.sites.1.nod is not a key (did you mean node?); clients.sites.1 has path, node, name"
        in message
    )
    assert "clients.sites.0.path is missing (path of its file" in refusal(
        tiny() | {"clients": {"sites": [{}]}}
    )


def test_key_of_another_kind_names_that_kind() -> None:
    message = refusal(tiny(), method__neighbors=10)
    of_others = re.search(r"method\.neighbors is not a key of kind fed-tsne, only of kind ([^.]*)\.", message)
    assert of_others is not None
    having = {name for name, method in METHODS.items() if "neighbors" in method.settings.model_fields}
    assert set(of_others[1].split(", ")) == having
    assert "clients.partition.alpha is not a key of kind shards, only of kind dirichlet" in refusal(
        tiny(), clients__partition={"kind": "shards", "alpha": 0.5}
    )


def test_key_in_the_wrong_section_names_the_right_one() -> None:
    assert "landmarks is not a key (did you mean method.landmarks?)" in refusal(tiny(), landmarks=10)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("data.site", "clients.partition of kind by-column"),
        ("method.random_state", "seed"),
    ],
)
def test_name_from_elsewhere_is_answered_with_the_key(key: str, meant: str) -> None:
    assert f"{key} is not a key (did you mean {meant}?)" in refusal(tiny(), **{key: "hospital"})


@pytest.mark.parametrize("section", ["name", "data", "clients", "method"])
def test_missing_section_is_named(section: str) -> None:
    content = tiny()
    del content[section]
    assert f"{section} is missing" in refusal(content)


def test_all_problems_are_reported_at_once() -> None:
    message = refusal(tiny(), method__rounds="many", seeds=1, data__scale="robust")
    assert all(key in message for key in ("method.rounds", "seeds", "data.scale"))


# --- kinds and values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind", "proposed"),
    [("method", "fed-tsn", "fed-tsne"), ("clients.partition", "dirichle", "dirichlet")],
)
def test_unknown_kind_suggests_the_nearest(key: str, kind: str, proposed: str) -> None:
    assert f"{key}.kind is '{kind}' (did you mean {proposed}?): it must be one of" in refusal(
        tiny(), **{f"{key}.kind": kind}
    )


def test_contradicting_embedder_settings_are_refused() -> None:
    message = refusal(tiny(), method={"kind": "fed-umap", "min_dist": 2.0})
    assert "min_dist is 2.0; it must be from 0 to spread" in message


def test_missing_kind_lists_all_kinds() -> None:
    assert f"method.kind is missing: it must be one of {', '.join(METHODS)}" in refusal(tiny(), method={})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("method.rounds", "many", "'many': it must be a whole number"),
        ("method.rounds", 2.5, "2.5: it must be a whole number"),
        ("method.rounds", -1, "-1: it must be at least 0"),
        ("method.rounds", True, "true: it must be a number"),
        ("method.gamma", 0, "0: it must be greater than 0"),
        ("method.gamma", float("nan"), "NaN: it must be a finite number"),
        (
            "method.estimator",
            "trilat",
            "'trilat' (did you mean trilateration?): it must be 'trilateration', ",
        ),
        ("seed", 2**32, f"{2**32}: it must be less than {2**32}"),
        ("seed", None, "null: it must be a whole number"),
        (
            "name",
            "a/b",
            "'a/b' (did you mean a-b?): it must be up to 100 letters (a-z, A-Z), digits and the characters . _ -",
        ),
        ("name", "Größe 2", "'Größe 2' (did you mean Groe-2?): it must be up to 100 letters"),
        ("name", "../run", "'../run' (did you mean run?): it must be"),
        ("name", "_run", "'_run' (did you mean run?): it must be"),
        ("name", "名前", "'名前': it must be up to 100 letters"),
        ("name", "", "'': it must be up to 100 letters"),
        ("name", "x" * 101, f"'{'x' * 59}...: it must be text of at most 100 characters"),
        ("name", 3, "3: it must be text (put it in quotes)"),
        ("data", "iris", "'iris': it must be a section of keys"),
        ("data.label", 3, "3: it must be text (put it in quotes)"),
        ("data.features", "width", "'width': it must be a list, such as [a, b]"),
        (
            "clients.partition",
            "dirichlet",
            "'dirichlet': it must be a section of keys, such as {kind: dirichlet}",
        ),
        ("runtime.actors", "some", "'some': it must be 'auto' or 'per-client' or a whole number"),
        ("runtime.federation", "rai", "'rai' (did you mean ray?): it must be 'ray' or 'inline'"),
        ("compare", "central", "'central': it must be a list, such as [a, b]"),
        ("metrics", "all", "'all': it must be 'default' or a list, such as [a, b]"),
    ],
)
def test_invalid_value_is_quoted_with_the_allowed_ones(key: str, value: Any, message: str) -> None:
    assert f"{key} is {message}" in refusal(tiny(), **{key: value})


def test_long_value_is_shortened() -> None:
    assert len(refusal(tiny(), data=list(range(10_000)))) < 300


def test_unknown_metric_suggests_the_nearest() -> None:
    assert "There is no metric 'nba_10' (did you mean npa_10?)" in refusal(tiny(), metrics=["nba_10"])


# --- impossible combinations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data.path": "mine.csv"}, "data: give exactly one of source"),
        ({"data": {}}, "data: give exactly one of source"),
        ({"clients": {}}, "clients: a partition of kind 'iid' needs count"),
        ({"clients": {"partition": {"kind": "shards"}}}, "a partition of kind 'shards' needs count"),
        ({"clients.partition": {"kind": "by-column"}}, "clients.partition.column is missing"),
        (
            {"privacy__secure_aggregation": True, "method__aggregation": {"kind": "coordinate-median"}},
            "and privacy.secure_aggregation hides them",
        ),
        ({"privacy__secure_aggregation": True, "clients__count": 2}, "needs at least 3 clients"),
        ({"faults__dropout": 0.1}, "set runtime.quorum below 1"),
        ({"faults__crashes": [{"client": 0, "round": 1}], "runtime__retries": 0}, "runtime.retries"),
        ({"clients__sites": [{"path": "a.csv"}]}, "leave count and partition out"),
        ({"faults__crashes": [{"client": 3, "round": 1}]}, "names client 3, but there are 3 clients"),
        ({"faults__crashes": [{"client": 0, "round": 3}]}, "a crash in round 3, and the method has 2 rounds"),
        (
            {"faults__adversary": {"kind": "scaling", "fraction": 0.1}},
            "which is no client of 3: choose at least",
        ),
        (
            {"method": {"kind": "sense"}, "privacy__noise": {"on": "data", "level": 1, "clients": 0.1}},
            "privacy.noise.clients is 0.1, which selects none of the 3 clients",
        ),
        ({"method": {"kind": "sense"}, "faults__stragglers": 0.5}, "faults.stragglers would have no effect"),
        (
            {"method": {"kind": "global-ne"}, "faults__corrupt": 0.5, "runtime__quorum": 0.5},
            "it applies to rounds, and method.kind 'global-ne' has none",
        ),
        (
            {"method": {"kind": "sense"}, "clients__participation": 0.5},
            "clients.participation would have no effect",
        ),
    ],
)
def test_impossible_combinations_are_refused(overrides: dict[str, Any], message: str) -> None:
    assert message in refusal(tiny(), **overrides)


def test_pooled_map_is_refused_for_methods_without_one() -> None:
    """The error comes before the run: an extension method may have neither an embedder nor its own map."""

    class Bare(MethodSettings):
        kind: str = "bare"

    compared = tiny_scenario(compare=["central"])
    assert pooled_map_that_can_be_drawn(compared) is None
    problem = pooled_map_that_can_be_drawn(compared.model_copy(update={"method": Bare()}))
    assert problem is not None
    assert "method.kind 'bare' has none" in problem
    assert pooled_map_that_can_be_drawn(compared.model_copy(update={"method": Bare(), "compare": ()})) is None


def test_client_count_may_be_omitted_if_the_data_determine_it() -> None:
    assert tiny_scenario(clients={"partition": {"kind": "one-class"}}).clients.count is None


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [1\n", "is not valid YAML: expected ',' or ']'"),
        ("name: a\nseed: 1\nname: b\n", "is not valid YAML: the key 'name' appears twice, line 3"),
        ("data:\n  source: a\n  source: b\n", "appears twice, line 3"),
        ("? [a]\n: b\n", "is not valid YAML: a list or a section cannot be a key, line 1"),
        ("- a\n- b\n", "contains a list, not a scenario"),
        ("", "contains nothing, not a scenario"),
        ("3\n", "contains a single value, not a scenario"),
        ("name: !!python/name:os.system x\n", "is not valid YAML: could not determine a constructor"),
    ],
)
def test_file_without_a_scenario_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    paragraph = refusal(path)
    assert message in paragraph
    assert str(path) in paragraph


def test_binary_file_and_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "it is not UTF-8 text" in refusal(tmp_path / "binary.yaml")
    assert "is not the folder of a run" in refusal(tmp_path)


def test_unknown_name_suggests_a_shipped_scenario_or_file(tmp_path: Path) -> None:
    assert "There is no scenario 'digits-fed-tsn' (did you mean digits-fed-tsne?)" in refusal(
        "digits-fed-tsn"
    )
    tiny_file(tmp_path)
    assert "(did you mean tiny.yaml?)" in refusal(tmp_path / "tinny.yaml")


# --- overrides ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignment", ["method.landmarks", "=200", " =200", ""])
def test_override_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(ScenarioError, match="does not have the form KEY=VALUE"):
        parse_override(assignment)


def test_override_with_invalid_yaml_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"--set 'seed=\[1': the value is not YAML"):
        parse_override("seed=[1")


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("data.label=a=b", "data.label", "a=b"),
        ("data.label==", "data.label", "="),
        ("data.path=/data/by=day/rows.csv", "data.path", "/data/by=day/rows.csv"),
        ("data.features=[a=1, b]", "data.features", ["a=1", "b"]),
    ],
)
def test_override_value_may_contain_an_equals_sign(assignment: str, key: str, value: Any) -> None:
    assert parse_override(assignment) == (key, value)


def test_override_into_a_scalar_is_refused() -> None:
    assert "name.x cannot be set: name is 'tiny', not a section of keys" in refusal(tiny(), name__x=1)


def test_overrides_change_only_the_named_keys() -> None:
    content = tiny()
    changed = read(content, {"method.landmarks": 30, "data.rows": 100})
    assert (changed.method.landmarks, changed.data.rows) == (30, 100)
    assert content == tiny()
    content["method"]["landmarks"], content["data"]["rows"] = 30, 100
    assert changed == read(content)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
words = st.text("abcxyz_-. ", max_size=12)


@fifty
@given(st.text("abc._-", min_size=1), plain | words | st.lists(plain) | st.dictionaries(words, plain))
def test_written_override_is_read_back(key: str, value: Any) -> None:
    written = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    assert parse_override(f"{key}={written}") == (key, value)


@fifty
@given(st.text())
def test_any_text_is_a_valid_override_or_refused(text: str) -> None:
    try:
        key, _ = parse_override(text)
    except ScenarioError:
        return
    assert key == text.partition("=")[0].strip()


values = (
    plain | words | st.lists(plain | words, max_size=3) | st.dictionaries(words, plain | words, max_size=3)
)
paths = st.sampled_from(
    [
        "name",
        "seed",
        "data",
        "data.rows",
        "clients",
        "clients.count",
        "clients.partition",
        "clients.partition.kind",
        "method",
        "method.kind",
        "method.landmarks",
        "method.gamma",
        "runtime.actors",
        "compare",
        "metrics",
        "new",
    ]
)


@fifty
@given(st.dictionaries(paths, values, min_size=1, max_size=3))
def test_any_setting_gives_a_scenario_or_one_paragraph(overrides: dict[str, Any]) -> None:
    try:
        outcome: Scenario | RaydrError = read(tiny(), overrides)
    except RaydrError as error:
        outcome = error
    if isinstance(outcome, RaydrError):
        assert "\n" not in str(outcome)
        assert outcome.exit_code == 2


# --- what was read is written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_are_named_and_described(name: str) -> None:
    assert read(name).name == name
    assert shipped()[name]


@pytest.mark.parametrize("name", [*shipped(), None])
def test_dumped_scenario_is_read_back(name: str | None) -> None:
    scenario = read(name) if name else tiny_scenario(clients__partition={"kind": "shards", "classes": 2})
    assert read(yaml.safe_load(dump(scenario))) == scenario


@fifty
@given(
    st.fixed_dictionaries(
        {"data.holdout": st.sampled_from([0.2, 30])},  # some metrics need it
        optional={
            "seed": st.integers(0, 2**32 - 1),
            "data.rows": st.none() | st.integers(2, 150),
            "data.scale": st.sampled_from(["none", "standard", "minmax", "unit"]),
            "clients.count": st.integers(1, 50),
            "clients.partition": st.sampled_from([{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.1}]),
            "method.gamma": st.none() | st.floats(1e-9, 1e9),
            "method.perplexity": st.none() | st.floats(1, 40),
            "runtime.actors": st.sampled_from(["auto", "per-client", 3]),
            "compare": st.sampled_from([[], ["central"]]),
            "metrics": st.just("default") | st.lists(st.sampled_from(sorted(METRICS))),
        },
    )
)
def test_dumped_scenario_with_any_text_is_read_back(overrides: dict[str, Any]) -> None:
    scenario = read(tiny(), overrides)
    assert read(yaml.safe_load(dump(scenario))) == scenario


def test_relative_path_is_dumped_as_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dumped = yaml.safe_load(dump(tiny_scenario(data={"path": "rows.csv"})))
    assert dumped["data"]["path"] == str(tmp_path.resolve() / "rows.csv")


def test_key_named_on_is_not_a_boolean(tmp_path: Path) -> None:
    path = tmp_path / "noisy.yaml"
    path.write_text(
        "name: noisy\ndata: {source: iris}\nclients: {partition: {kind: pointwise}}\n"
        "method: {kind: sense, regime: pointwise}\nprivacy: {noise: {on: distances, level: 0.1}}\n"
    )
    noise = read(path).privacy.noise
    assert noise is not None
    assert noise.on == "distances"


def test_clients_and_evaluation_have_the_same_rows() -> None:
    client_data = dealt_out(tiny_scenario(seed=3), None)
    truth = load(source="iris").rows
    assert not np.array_equal(np.sort(client_data.client_of_row), client_data.client_of_row)
    for _ in range(2):  # before the rows are pooled and after
        for client, part in enumerate(client_data.parts):
            assert isinstance(part, np.ndarray)
            np.testing.assert_array_equal(part, truth[client_data.client_of_row == client])
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 0.0
        np.testing.assert_array_equal(
            np.concatenate([np.asarray(part) for part in client_data.parts])[client_data.in_table_order],
            truth,
        )
        np.testing.assert_array_equal(client_data.pooled(), truth)


def test_client_receives_the_classes_of_its_own_rows(tmp_path: Path) -> None:
    """Harmonizing may keep classes; rows of clients are mixed in the table."""
    wards = Wards.drawn()
    keep = {"kind": "combat", "keep": ["diagnosis"]}
    client_data = dealt_out(tiny_scenario(**wards.written(tmp_path / "wards.csv", harmonize=keep)), None)
    assert client_data.names == wards.names
    for _ in range(2):  # before the rows are pooled and after
        for name, part, classes in zip(
            client_data.names, client_data.parts, client_data.own_classes, strict=True
        ):
            assert isinstance(part, np.ndarray)
            np.testing.assert_array_equal(part, wards.rows[wards.of(name)])
            np.testing.assert_array_equal(classes, part[:, 3])
        np.testing.assert_array_equal(client_data.kept_classes, client_data.pooled()[:, 3])


def test_pooled_rows_are_in_memory_once() -> None:
    client_data = dealt_out(tiny_scenario(), None)
    bases = {id(part.base): part.base for part in client_data.parts if isinstance(part, np.ndarray)}
    (dealt,) = (weakref.ref(base) for base in bases.values() if base is not None)
    bases.clear()
    assert dealt() is not None
    assert client_data.pooled() is client_data.pooled()
    assert dealt() is None
