"""Policies of sites in whole runs: who may refuse what, before and during a run, inline, resumed and in a plan."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.parquet import read_table
from resumed import content, interrupted, table
from tiny import tiny, tiny_run, tiny_run_with_report, tiny_scenario

import raydr
from raydr.data.survey.raw_cells import hash_code
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.privacy.policy import PROFILES, Policy, PolicyError
from raydr.privacy.policy_file import read_policy
from raydr.report.run.released import write_released
from raydr.runfolder import read_run
from raydr.runfolder.model import read_model
from raydr.runfolder.records import EMBEDDING, SHOWN
from raydr.scenarios.afterwards.joining import join
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.schema.reading import read
from raydr.statistics.noisy_survey import SURVEY

PCA: dict[str, Any] = {"kind": "fed-pca"}
"""A method that can keep the places of records at their sites."""
LOCAL = {("local", "aggregate-only"), ("local", "datashield")}
"""Policies that allow the method if the places of records stay at their sites."""
PRIVATE: dict[str, Any] = {
    "kind": "private-map",
    "epsilon": 4.0,
    "bounds": [-4.0, 8.0],
    "iterations": 5,
    "early_iterations": 5,
    "placing_iterations": 5,
}
"""A method that counts no records without noise."""


def policy_file(folder: Path, text: str, name: str = "site.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


# The document.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("per_records: never", "unknown key 'per_records' (did you mean per_record?)"),
        (
            "per_record: nver",
            "per_record is 'nver' (did you mean never?), expected 'allowed', 'with-noise' or 'never'",
        ),
        ("profile: datashild", "profile is 'datashild' (did you mean datashield?)"),
        ("least_rows: 0", "least_rows is 0: input should be greater than or equal to 1"),
        ("least_rows: yes", "least_rows is true, expected a number"),
        ("", "has no keys"),
        ("- a", "has no keys"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_policy_file_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read_policy(policy_file(tmp_path, text))


def test_policy_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ScenarioError, match=r"did you mean private\?"):
        read_policy("privat")


def test_profile_is_the_start_of_a_policy(tmp_path: Path) -> None:
    found = read_policy(policy_file(tmp_path, "profile: datashield\nleast_count: 10\nreaders: our board"))
    assert (found.least_rows, found.least_count, found.per_record) == (3, 10, "never")
    assert found.name == "datashield, changed"
    assert read_policy("datashield").name == "datashield"


@pytest.mark.parametrize("profile", PROFILES)
def test_open_alone_restricts_nothing(profile: str) -> None:
    assert (not Policy.of_profile(profile).rules) == (profile == "open")


# Whole runs.


def test_policy_that_allows_the_run_changes_no_bit(tmp_path: Path) -> None:
    plain = tiny_run(tmp_path / "plain", method=PCA)
    allowed = tiny_run(tmp_path / "allowed", method=PCA, clients__policy="open")
    assert (plain / "embedding.parquet").read_bytes() == (allowed / "embedding.parquet").read_bytes()
    (first, *_) = read_run(allowed).privacy.policies
    assert (first.policy, first.rules) == ("open", ())
    assert read_run(plain).privacy.policies == ()


def test_page_has_a_line_for_each_site(tmp_path: Path) -> None:
    file = policy_file(tmp_path, "least_rows: 9")
    page = (tiny_run_with_report(tmp_path / "run", clients__policy=file) / "report.html").read_text()
    assert "open, changed, least_rows: 9" in page


def test_run_against_a_policy_ends_with_nothing_written(tmp_path: Path) -> None:
    file = policy_file(tmp_path, "profile: datashield\nleast_count: 1")
    rule = r"'client-0' \(datashield, changed\) has the rule 'per_record: never'.* Distances"
    with pytest.raises(PolicyError, match=rule):
        tiny_run(tmp_path / "run", clients__policy=file)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("publish", ["server", "local"])
def test_plan_and_run_give_the_same_answer(tmp_path: Path, profile: str, publish: str) -> None:
    chosen = {"method": {**PCA, "publish": publish}, "clients__policy": profile, "data__scale": "standard"}
    if profile == "aggregate-only":
        chosen["privacy__secure_aggregation"] = True
    planned = plan_of_scenario(tiny_scenario(**chosen)).policies
    assert len(planned) == 3
    assert {each.allowed for each in planned} == {profile == "open" or (publish, profile) in LOCAL}
    try:
        tiny_run(tmp_path / "run", **chosen)
    except PolicyError as error:
        found = re.search(r"has the rule ('.*?'), which does not allow the message (\w+)", str(error))
        assert found is not None
        if found[1] == "'least_count: 3'":  # what a plan cannot know, and says so
            assert found[2] in planned[0].counts
        else:
            assert any(found[1] in sentence for sentence in planned[0].refusals)
    else:
        assert planned[0].allowed


def test_plan_prints_yes_or_no_with_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(tiny()))
    assert status(["plan", str(path), "--policy", "datashield"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "sites 'client-0', 'client-1', 'client-2', policy datashield: no" in printed
    assert "'per_record: never'" in printed
    assert status(["plan", str(path), "--policy", "open"]) == 0
    assert "policy open: yes" in " ".join(capsys.readouterr().out.split())


def test_method_and_columns_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"'methods: \[private-map\]'.*the method is fed-tsne"):
        tiny_run(tmp_path / "a", clients__policy=policy_file(tmp_path, "methods: [private-map]"))
    with pytest.raises(DataError, match=r"'columns: \[petal_length\]'.*uses the column"):
        tiny_run(tmp_path / "b", clients__policy=policy_file(tmp_path, "columns: [petal_length]"))


# A site's own file.


def site_files(folder: Path, **policies: str) -> dict[str, Any]:
    """Return a scenario of three wards of 30 patients, with their files and policies."""
    random = np.random.default_rng(4)
    sites = []
    for ward in ("north", "eastwick", "west"):
        path = folder / f"{ward}.csv"
        words = ["smoker"] * 14 + ["never"] * 14 + ["chews"] * 2
        rows = [
            f"{a:.4f},{b:.4f},{word}" for (a, b), word in zip(random.normal(size=(30, 2)), words, strict=True)
        ]
        path.write_text("\n".join(["age,bmi,tobacco", *rows]) + "\n")
        site = {"path": str(path)}
        if ward in policies:
            site["policy"] = policy_file(folder, policies[ward], f"{ward}.yaml")
        sites.append(site)
    return {**tiny(), "data": {}, "clients": {"sites": sites}, "method": PCA}


def test_policy_of_one_site_has_the_last_word(tmp_path: Path) -> None:
    content = site_files(tmp_path, eastwick="per_record: never")
    content["data"]["features"] = ["age", "bmi"]
    with pytest.raises(
        PolicyError, match=r"site 'eastwick' \(open, changed\) has the rule 'per_record: never'"
    ):
        raydr.run(content, out=tmp_path / "run")
    planned = plan_of_scenario(read(content)).policies
    assert [each.allowed for each in planned] == [True, False, True]


def test_general_policy_and_own_policy_hold_together(tmp_path: Path) -> None:
    content = site_files(tmp_path, eastwick="least_rows: 40")
    content["data"]["features"] = ["age", "bmi"]
    content["clients"]["policy"] = "open"
    with pytest.raises(PolicyError, match=r"'least_rows: 40', .*: the site has 30 rows"):
        raydr.run(content, out=tmp_path / "run")


def test_column_that_a_site_does_not_allow_is_not_read(tmp_path: Path) -> None:
    content = site_files(tmp_path, eastwick="columns: [age, bmi]")
    content["data"] = {"categories": "one-hot"}
    with pytest.raises(DataError, match=r"site 'eastwick'.*'columns: \[age, bmi\]'.*'tobacco'"):
        raydr.run(content, out=tmp_path / "run")


def test_rare_word_is_not_told(tmp_path: Path) -> None:
    content = site_files(tmp_path, north="least_count: 3", eastwick="least_count: 3", west="least_count: 3")
    content["method"], content["metrics"] = PRIVATE, []
    content["data"] = {"categories": "one-hot", "words": {"rows": 1, "sites": 1}}
    words = read_run(Path(raydr.run(content, out=tmp_path / "run").folder)).data.words
    assert words == {"tobacco": ("never", "smoker")}
    for site in content["clients"]["sites"]:
        del site["policy"]
    words = read_run(Path(raydr.run(content, out=tmp_path / "free").folder)).data.words
    assert words == {"tobacco": ("chews", "never", "smoker")}


def test_column_with_more_words_than_allowed_tells_none(tmp_path: Path) -> None:
    content = site_files(tmp_path, **dict.fromkeys(("north", "eastwick", "west"), "most_words: 2"))
    content["method"], content["metrics"] = PRIVATE, []
    content["data"] = {"categories": "one-hot", "words": {"rows": 1, "sites": 1}}
    data = read_run(Path(raydr.run(content, out=tmp_path / "run").folder)).data
    assert data.columns == ("age", "bmi")


def test_column_of_one_site_is_refused(tmp_path: Path) -> None:
    content = site_files(tmp_path, eastwick="least_sites: 2")
    path = Path(content["clients"]["sites"][0]["path"])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0] + ",viral_load", *(line + ",1.5" for line in lines[1:])]) + "\n")
    content["data"] = {"categories": "one-hot", "missing": "mean"}
    with pytest.raises(DataError, match=r"'least_sites: 2'.*'viral_load': 1 of 3 sites has a value"):
        raydr.run(content, out=tmp_path / "run")


def test_names_of_sites_are_not_told(tmp_path: Path) -> None:
    """No file of the run has a name that only the table has."""
    scenario = content(table(tmp_path))
    scenario["clients"]["policy"] = policy_file(tmp_path, "site_name: hidden")
    folder = Path(raydr.run(scenario, out=tmp_path / "run").folder)
    for file in folder.rglob("*"):
        assert not (file.is_file() and re.search(rb"\b(north|west)\b", file.read_bytes())), file
    assert {each.site for each in read_run(folder).privacy.policies} == {"site 1", "site 2", "site 3"}


def test_plan_and_run_refuse_cells_with_fractions_of_records(tmp_path: Path) -> None:
    chosen = {
        "method": {"kind": "fedne", "publish": "local", "rounds": 4, "hidden": [8], "local_steps": 2},
        "clients__policy": "datashield",
        "data__scale": "standard",
    }
    planned = plan_of_scenario(tiny_scenario(**chosen)).policies
    assert not any(each.allowed for each in planned)
    assert all("'least_count: 3'" in sentence for each in planned for sentence in each.refusals)
    with pytest.raises(PolicyError, match=r"'least_count: 3'.* Density .*fractions of single records"):
        tiny_run(tmp_path / "run", **chosen)


# The default of private runs.


def test_private_run_refuses_what_no_noise_covers(tmp_path: Path) -> None:
    """The map has noise, and the means and deviations of the scaling have none."""
    scaled = {"method": PRIVATE, "data__scale": "standard", "clients__policy": "private", "metrics": []}
    planned = plan_of_scenario(tiny_scenario(**scaled)).policies
    assert all("'extremes: never'" in each.refusals[0] for each in planned)
    with pytest.raises(PolicyError, match=r"\(private\) has the rule 'extremes: never'"):
        tiny_run(tmp_path / "run", **scaled)


def test_private_is_the_default_policy_of_a_strict_run(tmp_path: Path) -> None:
    budget = {"privacy__strict": True, "privacy__epsilon_max": 20.0}
    strict = {"method": PRIVATE, "data__scale": "none", "metrics": [], **budget}
    planned = plan_of_scenario(tiny_scenario(**strict)).policies
    assert {(each.policy, each.allowed) for each in planned} == {("private, changed", True)}
    assert all("epsilon: 20.0" in each.rules for each in planned)
    assert tiny_run(tmp_path / "run", **strict).exists()


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_private_run_refuses_a_fill_value_without_noise(tmp_path: Path, missing: str) -> None:
    content = site_files(tmp_path)
    content["data"] = {"features": ["age", "bmi"], "missing": missing}
    content["method"], content["clients"]["policy"] = PRIVATE, "private"
    with pytest.raises(
        PolicyError, match=r"\(private\) has the rule '(extremes: never|aggregate: with-noise)'"
    ):
        raydr.run(content, out=tmp_path / "run")


def test_median_of_few_records_is_refused_with_their_count(tmp_path: Path) -> None:
    content = site_files(tmp_path)
    content["data"] = {"features": ["age", "bmi"], "missing": "median"}
    content["method"], content["clients"]["policy"] = PRIVATE, "datashield"
    with pytest.raises(PolicyError, match=r"'least_count: 3', which does not allow the message Below"):
        raydr.run(content, out=tmp_path / "run")


STRICT = {"strict": True, "epsilon_max": 100.0}
"""A private run whose sites name no policy."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"features": ["age", "bmi"], "missing": "median"}, "this message has none: .* at most as large"),
        (
            {"categories": "one-hot", "words": {"rows": 1, "sites": 1}},
            "a single row can decide which columns",
        ),
    ],
    ids=["a median where two records differ", "rare words"],
)
def test_strict_run_refuses_medians_and_words_without_noise(
    tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    content = site_files(tmp_path) | {"method": PRIVATE, "data": data, "privacy": STRICT}
    with pytest.raises(ScenarioError, match=message):
        raydr.run(content, out=tmp_path / "run")


def test_rare_word_is_no_feature_of_a_strict_run(tmp_path: Path) -> None:
    """With a noisy survey, words are hash codes in noisy counts; six rows of 90 do not exceed the noise."""
    method = {key: value for key, value in PRIVATE.items() if key != "bounds"} | {"epsilon": 20.0}
    secret = tmp_path / "secret"  # so that the noise is always the same
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    content = site_files(tmp_path) | {"method": method, "data": {}, "metrics": []}
    content["privacy"] = STRICT | {"secret": str(secret)}
    folder = Path(raydr.run(content, out=tmp_path / "run").folder)
    model = read_model(folder)
    codes = np.asarray(model.arrays[SURVEY])[2]
    assert hash_code("chews") not in codes
    assert not any(b"chews" in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_run_from_another_folder_repeats_its_noise(tmp_path: Path) -> None:
    """Otherwise the mean of runs from many folders would have less noise."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    models = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        content = site_files(tmp_path / name) | {"data": {"features": ["age", "bmi"]}, "method": PRIVATE}
        content |= {"metrics": [], "privacy": {"secret": str(secret)}}
        models.append(read_model(Path(raydr.run(content, out=tmp_path / name / "run").folder)))
    assert all(np.array_equal(array, models[1].arrays[key]) for key, array in models[0].arrays.items())


def test_column_of_one_site_is_refused_by_default(tmp_path: Path) -> None:
    content = site_files(tmp_path)
    path = Path(content["clients"]["sites"][0]["path"])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0] + ",viral_load", *(line + ",1.5" for line in lines[1:])]) + "\n")
    method = {key: value for key, value in PRIVATE.items() if key != "bounds"}
    content |= {"method": method, "data": {}, "privacy": STRICT}
    with pytest.raises(DataError, match=r"'least_sites: 2'.*'viral_load': 1 of 3 sites has a value"):
        raydr.run(content, out=tmp_path / "run")


def test_private_run_with_a_site_of_one_row_ends(tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    rows = [
        f"{value:.3f},{-value:.3f},{'a' if row else 'b'}" for row, value in enumerate(np.linspace(0, 1, 40))
    ]
    file.write_text("\n".join(["x,y,ward", *rows]) + "\n")
    scenario = {
        **tiny(),
        "data": {"path": str(file), "features": ["x", "y"]},
        "clients": {"partition": {"kind": "by-column", "column": "ward"}},
        "method": {"kind": "private-map", "epsilon": 4.0, "bounds": [0.0, 1.0]},
        "privacy": {"strict": True, "epsilon_max": 100.0},
    }
    with pytest.raises(
        PolicyError, match=r"site 'b' \(private, changed\) has the rule 'least_rows: 5'.*1 row"
    ):
        raydr.run(scenario, out=tmp_path / "run")


# What a run shows of single records.


def ward_table(folder: Path) -> Path:
    """Return a table of two wards of 40 patients, with an oldest patient and a rare diagnosis."""
    random = np.random.default_rng(6)
    lines = ["age,bmi,ward,diagnosis"]
    for row in range(80):
        age = 103.0 if row == 1 else float(random.integers(30, 80))
        diagnosis = "rare" if row in (4, 5) else ("flu", "cold")[row % 3 == 0]
        lines.append(f"{age},{random.normal(25.0, 3.0):.3f},{'ab'[row % 2]},{diagnosis}")
    path = folder / "wards.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def shown_run(folder: Path, policy: str | None, **more: Any) -> Path:
    scenario = tiny() | {
        "data": {"path": str(ward_table(folder)), "label": "diagnosis", "features": ["age", "bmi"]},
        "clients": {"partition": {"kind": "by-column", "column": "ward"}},
        "method": PRIVATE | {"bounds": [0.0, 110.0]},
        "show": ["age", "bmi"],
        **more,
    }
    if policy is not None:
        scenario["clients"]["policy"] = policy
    return Path(raydr.run(scenario, out=folder / f"run-{policy}").folder)


def test_shown_values_and_labels_are_those_of_several_records(tmp_path: Path) -> None:
    free, bound = shown_run(tmp_path, None), shown_run(tmp_path, "datashield")
    owners = read_table(bound / EMBEDDING).column("client").to_pylist()
    shown = read_table(bound / SHOWN)
    rows = list(
        zip(owners, *(shown.column(f"column.{name}").to_pylist() for name in ("age", "bmi")), strict=True)
    )
    assert min(Counter(rows).values()) >= 3
    assert 103.0 in read_table(free / SHOWN).column("column.age").to_pylist()
    assert b"103" not in (bound / SHOWN).read_bytes()
    labels = Counter(zip(owners, read_table(bound / EMBEDDING).column("label").to_pylist(), strict=True))
    assert min(labels.values()) >= 3
    assert not any(label == "rare" for _, label in labels)
    assert "rare" in read_table(free / EMBEDDING).column("label").to_pylist()


def test_released_folder_has_nothing_of_single_records(tmp_path: Path) -> None:
    secret = tmp_path / "secret"  # so that the noise is always the same
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    folder = shown_run(tmp_path, "private", privacy={"strict": True, "secret": str(secret)})
    released = write_released(folder, tmp_path / "released").parent
    single = re.compile(rb"\brare\b|(?<![\d.])103(\.0*)?(?![\d.])")  # and no part of another number
    assert single.search(b"age,103.0")
    for file in filter(Path.is_file, released.rglob("*")):
        # Places of landmarks in the picture are any numbers.
        text = re.sub(rb"<circle [^>]*>", b"", file.read_bytes())
        assert not single.search(text), file


def test_released_folder_says_that_periods_are_not_in_it(tmp_path: Path) -> None:
    data = {"path": str(ward_table(tmp_path)), "time": "diagnosis", "features": ["age", "bmi"]}
    folder = shown_run(tmp_path, "private", privacy={"strict": True}, data=data)
    released = write_released(folder, tmp_path / "released")
    assert "Neither are the periods of diagnosis" in released.read_text()
    for file in released.parent.rglob("*"):
        assert not (file.is_file() and re.search(rb"\bflu\b|\bcold\b", file.read_bytes())), file


# Resumed runs.


def test_policy_that_became_stricter_holds_when_a_run_resumes(tmp_path: Path) -> None:
    file = policy_file(tmp_path, "least_rows: 2")
    kept = interrupted(tmp_path, lambda scenario: scenario["clients"].update(policy=file))
    policy_file(tmp_path, "per_record: never")
    with pytest.raises(PolicyError, match="per_record: never"):
        raydr.resume(kept)
    policy_file(tmp_path, "least_rows: 3")
    assert raydr.resume(kept).folder.exists()


def test_site_that_joins_later_applies_the_policy_for_all_sites(tmp_path: Path) -> None:
    scenario = content(table(tmp_path)) | {"method": PCA}
    scenario["clients"]["policy"] = policy_file(tmp_path, "least_rows: 2")
    folder = Path(raydr.run(scenario, out=tmp_path / "run").folder)
    site = tmp_path / "south.csv"
    site.write_text(
        "\n".join(["a,b,c,diagnosis", *(f"{row},{row % 3},{row % 5},no" for row in range(9))]) + "\n"
    )
    policy_file(tmp_path, "per_record: never")
    with pytest.raises(PolicyError, match=r"site 'south' \(open, changed\) has the rule 'per_record: never'"):
        join(folder, site)
    assert not (folder / "joined").exists()
    policy_file(tmp_path, "least_rows: 9")
    assert join(folder, site).exists()
    assert (folder / "joined" / "1").is_dir()


@pytest.mark.slow
def test_policy_is_part_of_a_run_on_ray(tmp_path: Path) -> None:
    scenario = content(table(tmp_path)) | {"runtime": {"actors": 2}}
    scenario["clients"]["policy"] = policy_file(tmp_path, "per_record: never")
    with pytest.raises(PolicyError, match=r"site '\w+' \(open, changed\) has the rule 'per_record: never'"):
        raydr.run(scenario, out=tmp_path / "run")
    own = site_files(tmp_path, eastwick="least_rows: 31")
    own["data"]["features"] = ["age", "bmi"]
    own["runtime"] = {}
    with pytest.raises(PolicyError, match=r"site 'eastwick' \(open, changed\) has the rule 'least_rows: 31'"):
        raydr.run(own, out=tmp_path / "files")
