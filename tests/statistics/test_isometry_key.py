"""Rows under an isometry key: the same map, and the server cannot read features."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inline_federations import GROUP, KNOWN, cut, federate, federation_over, known
from tiny import tiny, tiny_scenario

import raydr
from raydr.arrays import Float64Array
from raydr.data.survey.layout import JointColumns
from raydr.errors import DataError, RaydrError, RunError, ScenarioError
from raydr.federation import Client, ClientHost, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.pads import pad
from raydr.geometry.points import squared_distances
from raydr.methods.sense.server import SENSE, completed
from raydr.privacy.isometry import Isometry
from raydr.privacy.sealing import sealed_size
from raydr.privacy.secrets import Secret
from raydr.runfolder.model import KEYED
from raydr.runfolder.reading import read_run
from raydr.statistics.dissimilarity import RowMetric, fit_transformation
from raydr.statistics.keying import (
    Blind,
    DiscloseRequest,
    KeyAlike,
    Keyed,
    KeyedScale,
    KeyRows,
    Moments,
    MomentsRequest,
    digits_of,
    disclose,
    key_alike,
    key_rows,
    keyed_metric,
    keyed_scale,
    opened,
    part_of_moments,
    unblinded,
)
from raydr.statistics.scaling import fit_scaling, scale_rows

KEY: dict[str, Any] = {"privacy__isometry_key": True}


def rows(count: int = 60, features: int = 5, seed: int = 0) -> Float64Array:
    rng = np.random.default_rng(seed)
    return np.asarray(
        rng.normal(size=(count, features)) * rng.lognormal(size=features) + rng.normal(size=features)
    )


def parts_of(federation: Federation) -> Float64Array:
    hosts = federation._exchange.transport.hosts  # type: ignore[attr-defined]
    return np.concatenate([client.rows for host in hosts for client in host._clients.values()])


@pytest.mark.parametrize("features", [1, 2, 512, 513, 3001])
def test_key_keeps_distances_and_changes_coordinates(features: int) -> None:
    data = rows(20, features)
    keyed = Isometry(KNOWN, data.mean(axis=0), float(data.std()))(data)
    before, after = squared_distances(data, data), squared_distances(keyed, keyed)
    np.testing.assert_allclose(after, before, atol=1e-11 * before.max())
    if features > 2:
        turned = (keyed - keyed.mean(axis=0)).ravel() @ (data - data.mean(axis=0)).ravel()
        assert abs(turned) < 0.6 * ((data - data.mean(axis=0)) ** 2).sum(), "not along the features any more"
    other = Isometry(Secret.drawn(), data.mean(axis=0), float(data.std()))(data)
    assert not np.allclose(keyed, other)


@pytest.mark.parametrize("features", [2, 64, 600])
def test_rotation_favours_no_direction(features: int) -> None:
    """The image of the first axis is uniform on the sphere: entries have mean 0 and variance 1 / n."""
    axis = np.eye(1, features)
    zero = np.zeros(features)
    seen = np.concatenate(
        [
            (key(axis) - key(np.zeros((1, features)))).ravel()
            for key in (Isometry(KNOWN.derived(turn), zero, 1.0) for turn in range(2000 // features + 200))
        ]
    )
    assert abs(seen.mean()) < 5 * np.sqrt(1 / features / len(seen))
    np.testing.assert_allclose((seen**2).mean(), 1 / features, rtol=1e-9)
    if features > 2:
        assert abs((seen**4).mean() * features**2 - 3 * features / (features + 2)) < 0.25, "as of the sphere"


def test_shift_is_as_wide_as_the_data() -> None:
    drawn = KNOWN.stream("shift").standard_normal(4)
    centre = np.array([1e3, 0.0, -7.0, 2.0])
    moved = Isometry(KNOWN, centre, 3.0)((centre + 3.0 * drawn)[None])
    np.testing.assert_allclose(moved, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("features", "drawn"), [(512, [("turn",)]), (513, [("turn", 0), ("turn", 1), ("turn", 2)])]
)
def test_rotation_is_uniform_up_to_512_features_then_three_layers(
    features: int, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    stream = Secret.stream
    monkeypatch.setattr(Secret, "stream", lambda self, *names: asked.append(names) or stream(self, *names))
    Isometry(KNOWN, np.zeros(features), 1.0).motion()
    assert asked == [("shift",), *drawn]


def test_layer_is_signs_permutation_and_cosine_transform() -> None:
    features = 600
    places = np.arange(features)
    cosines = np.sqrt(2.0 / features) * np.cos(np.pi * np.outer(places, places + 0.5) / features)
    cosines[0] /= np.sqrt(2.0)
    data = rows(3, features)
    move = Isometry(KNOWN, np.zeros(features), 0.0).motion()
    turned = data
    for layer in range(3):
        stream = KNOWN.stream("turn", layer)
        signs = stream.choice([-1.0, 1.0], features)
        turned = (turned * signs)[:, stream.permutation(features)] @ cosines.T
    np.testing.assert_allclose(move(data), turned, atol=1e-10)


def test_keyed_row_does_not_depend_on_its_position() -> None:
    data, key = rows(9_000, 2), Isometry(KNOWN, np.zeros(2), 1.0)
    some = [0, 4095, 4096, 8191, 8192, 8999]
    np.testing.assert_allclose(key(data)[some], key(data[some]), rtol=1e-12)


@given(st.lists(st.floats(-(2.0**79), 2.0**79), min_size=1, max_size=5))
def test_digits_add_up_to_the_value(values: list[float]) -> None:
    digits = digits_of(np.array(values))
    total = sum(digits[index] for index in range(len(digits) - 1, -1, -1))
    np.testing.assert_allclose(total, values, rtol=1e-15, atol=2.0**-80)
    for digit, unit in zip(digits[:-1], (48, 16, -16, -48), strict=True):
        assert (np.ldexp(digit, -unit) % 1 == 0).all()


@settings(max_examples=15)
@given(
    st.sampled_from([0.0, 1.0, -1e9, 1.7e9]),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.integers(1, 6),
    st.integers(0, 100),
)
def test_keyed_scaling_equals_open_scaling(offset: float, width: float, clients: int, seed: int) -> None:
    """Cases: natural and empty sites, offsets and units; results have deviation 1 and mean 0."""
    assume(abs(offset) * 1e-13 < width)  # otherwise rounding is as wide as the narrowest column
    data = rows(seed=seed) * width + offset
    data[:, 1] = offset
    keyed = federate(cut(data, clients, seed))
    sealed = key_rows(keyed, "standard", 0)
    found = opened(sealed, GROUP, "", "euclidean").scaling
    plain = federate(cut(data, clients, seed))
    expected = fit_scaling(plain, "standard")
    rounding = 8 * np.finfo(float).eps * abs(offset) / width
    np.testing.assert_allclose(found.factor, expected.factor, rtol=1e-9 + 100 * rounding)
    np.testing.assert_allclose(found.shift, expected.shift, rtol=1e-14, atol=1e-9 * width)
    assert found.factor[1] == 0.0
    before, after = parts_of(plain), parts_of(keyed)
    np.testing.assert_allclose(
        squared_distances(after, after), squared_distances(before, before), atol=1e-6 + 1e4 * rounding
    )


def test_columns_of_words_are_scaled_under_a_key_as_without_one() -> None:
    data = rows(seed=3)
    data[:, 1:4] = np.eye(3)[np.arange(len(data)) % 3]
    parts = cut(data, 4, 3)
    sealed = key_rows(federate(parts), "standard", 0, JointColumns(((1, 4),)))
    expected = fit_scaling(federate(parts), "standard", JointColumns(((1, 4),)))
    found = opened(sealed, GROUP, "", "euclidean").scaling
    np.testing.assert_allclose(found.factor, expected.factor, rtol=1e-9)
    assert found.factor[1] == found.factor[2] == found.factor[3]


def test_digits_are_declared_from_2_80_down_to_2_minus_80() -> None:
    """Each digit but the last has 32 bits, and is bounded by the unit of the one before."""
    declared = Moments.ranges(MomentsRequest(2), 9)["digits"]
    tops = np.ldexp(1.0, [80, 48, 16, -16, -48])
    assert declared.shape == (5, 2)
    np.testing.assert_array_equal(declared.largest, np.column_stack([tops, tops]))
    value = np.array([2.0**79 - 2.0**27, 2.0**-60])
    digits = digits_of(value)
    assert (np.abs(digits) <= declared.largest).all()
    np.testing.assert_array_equal(digits.sum(axis=0), value)
    np.testing.assert_array_equal(digits[-1], [0.0, 2.0**-60])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_from_2_79_on_are_refused_by_the_client(sign: float) -> None:
    request, largest = MomentsRequest(2), sign * np.nextafter(2.0**79, 0.0)
    reported = part_of_moments(Client(index=0, rows=np.array([[largest, 1.0]]), seed=0), request).digits
    np.testing.assert_array_equal(reported.sum(axis=0), [largest, 1.0])
    with pytest.raises(DataError, match="too large to be summed under pads: express it in another unit"):
        part_of_moments(Client(index=0, rows=np.array([[1.0, sign * 2.0**79]]), seed=0), request)


def test_padded_sum_starts_at_its_smallest_digit() -> None:
    """No digit that decides the rounding is lost: the mean is exact and rounded once."""
    values = np.array([[2.0**50], [2.0**-3 + 2.0**-20]])
    federation = federate(list(values[:, None]))
    federation.agree()
    call, totals = federation.padded_sum(MomentsRequest(1), weights="rows")
    blind = Blind(totals["digits"], call.number, call.clients, call.total_weight)
    exact = float(sum(map(Fraction, values.ravel().tolist())) / 2)
    assert unblinded(Client(index=0, rows=values[:1], seed=0, agreed=GROUP), blind).tolist() == [exact]


@pytest.mark.parametrize(
    ("scale", "metric"), [("none", "euclidean"), ("standard", "euclidean"), ("none", "cosine")]
)
def test_sealed_moments_are_of_the_pooled_rows(scale: KeyedScale, metric: RowMetric) -> None:
    """Standard rows are keyed around 0 with unit 1, others around their mean with their mean deviation."""
    data = rows() * [1.0, 0.01, 1.0, 1.0, 1.0] + [0.0, 3.0, 0.0, 0.0, 0.0]
    sealed = key_rows(federate(cut(data, 4, 0)), scale, 0, metric=metric)
    assert sealed.size == sealed_size(8 * 16)
    found = opened(sealed, GROUP, "", metric)
    seen = data / np.linalg.norm(data, axis=1)[:, None] if metric == "cosine" else data
    mean, deviation = seen.mean(axis=0), seen.std(axis=0)
    assert found.metric == metric
    standard = scale == "standard"
    expected = (mean, 1 / deviation, np.zeros(5)) if standard else (np.zeros(5), np.ones(5), mean)
    for values, exact in zip(
        (found.scaling.shift, found.scaling.factor, found.centre), expected, strict=True
    ):
        np.testing.assert_allclose(values, exact, rtol=1e-9)
    assert found.unit == pytest.approx(1.0 if standard else np.sqrt((deviation**2).mean()), rel=1e-9)


def test_sealed_scaling_opens_only_in_its_run() -> None:
    hosted = [HostedClient(0, rows(), fingerprint(rows()))]
    host = ClientHost(hosted=hosted, seed=0, run="this run", host_secrets=known(hosted))
    federation = federation_over(InlineTransport([host]), 1, seed=0, run="this run")
    sealed = key_rows(federation, "standard", 0)
    assert opened(sealed, GROUP, "this run", "euclidean").unit == 1.0
    message = r"client 0 cannot open what it sealed in round 0 \(scaling under an isometry key\)"
    with pytest.raises(RunError, match=message):
        opened(sealed, GROUP, "another run", "euclidean")


def test_clients_that_scaled_by_different_sums_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = federate([rows(), rows(seed=1), rows(seed=2)])
    ask = federation.ask

    def tampered(request: Any) -> Any:
        *others, last = ask(request)
        return [*others, replace(last, scaling=last.scaling ^ 1) if isinstance(request, KeyRows) else last]

    monkeypatch.setattr(federation, "ask", tampered)
    with pytest.raises(RunError, match="clients scaled by different sums, or have different secrets"):
        key_rows(federation, "standard", 0)


def test_joining_client_keys_rows_like_the_others() -> None:
    data = rows()
    federation = federate([data, rows(seed=1)])
    sealed = key_rows(federation, "none", 0, metric="cosine")
    later = Client(index=2, rows=data, seed=0, agreed=GROUP)
    key_alike(later, KeyAlike(sealed, "cosine"))
    np.testing.assert_allclose(later.rows, parts_of(federation)[: len(data)], atol=1e-12)
    assert KeyAlike.sets_state
    assert KeyRows.sets_state, "a restarted client must receive it again"


def test_client_without_keyed_anchors_sends_none() -> None:
    """A client with keyed anchors sends only the requested ones."""
    client = Client(index=0, rows=rows(), seed=0)
    assert disclose(client, DiscloseRequest(1, 5)).rows.shape == (0, 5)
    client.reserve = rows(4, seed=3)
    np.testing.assert_array_equal(disclose(client, DiscloseRequest(3, 5)).rows, client.reserve[:3])


def test_scaling_is_declared_as_sealed() -> None:
    blind = Blind(np.zeros((5, 5), np.int64), 0, (), 1)
    declared = Keyed.ranges(KeyRows(5, "none", "euclidean", blind, blind, np.zeros((0, 2), np.int64)), 9)[
        "scaling"
    ]
    assert declared.sealed
    assert declared.shape == (sealed_size(8 * 16),)


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_all_scales_except_minmax_can_be_keyed(scale: Any) -> None:
    assert keyed_scale(scale) == scale
    with pytest.raises(ScenarioError, match=r"does not work with data\.scale minmax"):
        keyed_scale("minmax")


@pytest.mark.parametrize(
    ("scale", "metric"),
    [
        ("none", "euclidean"),
        ("none", "cosine"),
        ("standard", "cosine"),
        ("none", "correlation"),
        ("standard", "correlation"),
        ("none", "hellinger"),
    ],
)
def test_key_keeps_the_distances_of_every_metric_of_rows(scale: Any, metric: Any) -> None:
    data = np.abs(rows())
    keyed, plain = federate(cut(data, 4, 0)), federate(cut(data, 4, 0))
    key_rows(keyed, scale, 0, metric=metric)
    fit_scaling(plain, scale)
    fit_transformation(plain, metric)
    before, after = parts_of(plain), parts_of(keyed)
    np.testing.assert_allclose(squared_distances(after, after), squared_distances(before, before), atol=1e-9)


@pytest.mark.parametrize("metric", ["hamming", "gower"])
def test_metrics_that_need_extremes_cannot_be_keyed(metric: Any) -> None:
    with pytest.raises(ScenarioError, match=f"does not work with data.metric {metric}"):
        keyed_metric(metric)


def test_padded_summands_are_uniform_with_new_pads() -> None:
    """All values are zero, so without pads the total would be zero."""
    federation = federate([np.zeros((3, 2000)), np.zeros((2, 2000))])
    federation.agree()
    request = MomentsRequest(2000)
    (first, totals), (second, again) = federation.padded_sum(request), federation.padded_sum(request)
    assert first.number != second.number
    for total in (totals["digits"], again["digits"], totals["digits"] - again["digits"]):
        counts = np.bincount(total.view(np.uint8).ravel(), minlength=256)
        expected = total.nbytes / 256
        assert ((counts - expected) ** 2 / expected).sum() < 430, "chi-squared, false alarm in 10^10"
    own = pad(GROUP, first.number, 0, "digits", (5, 2000))
    other = pad(GROUP, first.number, 1, "digits", (5, 2000))
    np.testing.assert_array_equal(totals["digits"], own + other)


def test_padded_sum_is_unreadable_without_the_pads() -> None:
    federation = federate([rows(), rows()])
    with pytest.raises(TypeError, match="the server cannot read its sum"):
        federation.sum(MomentsRequest(5))
    with pytest.raises(RunError):
        opened(key_rows(federation, "standard", 0), Secret.drawn(), "", "euclidean")


def test_constant_or_too_large_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RaydrError, match="Every feature is constant"):
        key_rows(federate([np.ones((3, 2)), np.ones((4, 2))]), "standard", 0)
    with pytest.raises(RaydrError, match="too large to be summed under pads"):
        key_rows(federate([np.full((3, 2), 1e30), np.ones((4, 2))]), "standard", 0)


def test_anchors_are_sent_only_under_the_key() -> None:
    anchors = rows(8, seed=9)
    federation = federate([rows(), rows(seed=1)], reserve=anchors)
    assert federation.public is None
    sealed = key_rows(federation, "standard", len(anchors))
    found = opened(sealed, GROUP, "", "euclidean")
    assert federation.public is not None
    np.testing.assert_allclose(
        federation.public, Isometry(GROUP.derived("isometry"), found.centre, 1.0)(
            scale_rows(anchors, found.scaling)
        )
    )  # fmt: skip
    sent = [entry for entry in federation.ledger.entries.values() if entry.kind == "Disclosed"]
    assert [(entry.count, entry.keyed) for entry in sent] == [(2, True)]
    assert 0 <= sent[0].bytes - anchors.nbytes < 100, "the anchors once, with names and shapes"


def test_sense_recovers_the_same_geometry() -> None:
    """P3 with hidden anchors: distances between records are as without the key."""
    data, anchors = rows(), rows(6, seed=9)
    plain, keyed = federate(cut(data, 3, 0), public=anchors), federate(cut(data, 3, 0), reserve=anchors)
    key_rows(keyed, "none", len(anchors))
    found = [completed(federation, SENSE(anchors=6)).points for federation in (plain, keyed)]
    truth = squared_distances(data, data)
    for points in found:
        np.testing.assert_allclose(squared_distances(points, points), truth, atol=1e-8 * truth.max())
    assert not np.allclose(found[0], found[1], atol=0.1)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data__scale": "minmax"}, "would reveal the extremes of features"),
        ({"method__bounds": [0.0, 1.0]}, "method.bounds limit the original features"),
        ({"evaluate_every": 1}, "leave out evaluate_every"),
        ({"privacy__noise": {"on": "data", "level": 0.1, "stage": "all"}}, "permanent noise on records"),
        ({"method": {"kind": "sense", "geometry": "hyperbolic"}}, "distance to the origin"),
    ],
)
def test_settings_that_break_the_key_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=f"privacy.isometry_key: .*{message}"):
        tiny_scenario(**KEY, **sections)


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "fed-tsne", "early_iterations": 5, "iterations": 5},
        {"kind": "fed-spectral", "clusters": 3},
        {"kind": "fedne", "rounds": 2, "hidden": [8], "local_steps": 2},
        {"kind": "sense", "anchors": 3, "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}},
    ],
    ids=lambda method: method["kind"],
)
def test_keyed_run_sends_only_keyed_rows_and_keeps_no_scaling(tmp_path: Path, method: dict[str, Any]) -> None:
    """No file of the run folder has the shift or factor of a feature."""
    content = tiny() | {"method": method, "privacy": {"isometry_key": True}}
    content["data"] = {"source": "iris", "scale": "standard"}
    result = raydr.run(content, out=tmp_path / "run")
    run = read_run(result.folder)
    reported = [entry for entry in run.ledger if entry.direction == "up" and not entry.public]
    assert reported
    assert all(entry.keyed for entry in reported), "no message about rows was sent before they were keyed"
    with np.load(result.folder / "model" / "arrays.npz") as arrays:
        assert KEYED in arrays.files
        # An encoder has its own shift and factor, of rotated features.
        assert "shift" not in arrays.files or method["kind"] == "fedne"


def test_placing_rows_in_a_keyed_run_needs_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = {
        "kind": "sense",
        "anchors": 5,
        "embedder": {"kind": "tsne", "early_iterations": 50, "iterations": 100},
    }
    content = tiny() | {"method": method, "data": {"source": "iris", "scale": "standard"}}
    plain = raydr.run(content, out=tmp_path / "plain")
    keyed = raydr.run(content | {"privacy": {"isometry_key": True}}, out=tmp_path / "keyed")
    assert abs(plain.metrics["federated"]["npa_10"] - keyed.metrics["federated"]["npa_10"]) < 0.02
    from sklearn.datasets import load_iris

    iris = load_iris()
    table = tmp_path / "new.csv"
    lines = [",".join(iris.feature_names), *(",".join(map(str, row)) for row in iris.data[:5].tolist())]
    table.write_text("\n".join(lines) + "\n")
    places = raydr.transform(keyed.folder, table, out=tmp_path / "placed.csv")
    assert places.exists()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        with pytest.raises(RunError, match="kept for each user"):
            raydr.transform(keyed.folder, table, out=tmp_path / "other.csv")
