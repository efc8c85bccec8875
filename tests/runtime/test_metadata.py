"""Cards travel with the file; the working size follows the picture's shape."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgaze.core.errors import ModelError
from fastgaze.runtime.card import Kinds, ModelCard, WorkingSize, identity, parse_card, read_card, with_card
from fastgaze.runtime.predictor import load
from fastgaze.runtime.zoo import BUNDLED, models, write_index, write_times

CARD = ModelCard("m", "fastgaze", 10, 1.5, 8.0, np.linspace(-9, -7, 12, dtype=np.float32).reshape(3, 4))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((480, 640), (240, 320)),
        ((640, 480), (320, 240)),
        ((1, 1), (272, 272)),
        ((1000, 1000), (272, 272)),
        ((1080, 1920), (208, 368)),
        ((10, 10_000), (144, 560)),
        ((10_000, 10), (560, 144)),
    ],
)
def test_working_sizes_of_common_and_extreme_shapes(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert WorkingSize()(size) == expected


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(4_000, 400_000))
def test_a_working_size_has_the_area_and_the_shape(height: int, width: int, pixels: int) -> None:
    policy = WorkingSize(pixels=pixels)
    found = policy((height, width))
    assert all(side % 16 == 0 and side >= 32 for side in found)
    assert 0.6 < found[0] * found[1] / pixels < 1.6
    ratio = min(max(height / width, 0.25), 4)
    assert 0.6 < found[0] / found[1] / ratio < 1.6


def test_a_card_survives_json() -> None:
    again = ModelCard.from_json(json.loads(json.dumps(CARD.to_json())))
    assert np.array_equal(again.center_bias, CARD.center_bias)
    assert again.to_json() == CARD.to_json()


def test_centre_biases_of_both_kinds_survive_json_and_have_one_size() -> None:
    rng = np.random.default_rng(0)
    photograph, screen = (rng.normal(size=(48, 64)).astype(np.float32) for _ in range(2))
    weights = rng.normal(size=7).astype(np.float32)
    card = replace(CARD, kinds=Kinds(photograph, screen, weights, -0.25))
    document = json.loads(json.dumps(card.to_json()))
    again = ModelCard.from_json(document).kinds
    assert again is not None
    assert np.array_equal(again.photograph, photograph)
    assert np.array_equal(again.screen, screen)
    assert np.array_equal(again.weights, weights)
    assert again.offset == -0.25
    assert card.numerics != CARD.numerics
    document["kinds"]["screen"] = replace(CARD, center_bias=screen[:4]).to_json()["center_bias"]
    with pytest.raises(ModelError, match="different sizes"):
        ModelCard.from_json(document)
    for name, wrong in (("offset", float("nan")), ("offset", None), ("weights", CARD.to_json()["sigma"])):
        document = json.loads(json.dumps(card.to_json()))
        document["kinds"][name] = wrong
        with pytest.raises(ModelError, match="damaged"):
            ModelCard.from_json(document)


def test_the_bias_of_a_picture_of_unknown_kind_is_that_of_the_mean_density() -> None:
    photograph, screen = (np.log(np.array([values], np.float32)) for values in ((0.1, 0.9), (0.7, 0.3)))
    kinds = Kinds(photograph, screen, np.zeros(1, np.float32), 0.0)
    np.testing.assert_allclose(np.exp(kinds.center_bias(0.25)), [[0.25, 0.75]], rtol=1e-5)
    np.testing.assert_allclose(np.exp(kinds.center_bias(0)), np.exp(photograph), atol=0.01)
    np.testing.assert_allclose(np.exp(kinds.center_bias(1)), np.exp(screen), atol=0.01)


@pytest.mark.parametrize("key", [key for key in CARD.to_json() if key != "format"])
def test_an_incomplete_card_is_refused(key: str) -> None:
    document = CARD.to_json()
    del document[key]
    with pytest.raises(ModelError, match="damaged"):
        ModelCard.from_json(document)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": 1e300}, "sigma"),
        ({"gflop_640x480": float("inf")}, "gflop"),
        ({"normalisation": {"mean": [0, 0, 0], "std": [1, 0, 1]}}, "std"),
        ({"normalisation": {"mean": [0, float("nan"), 0], "std": [1, 1, 1]}}, "mean"),
        ({"working_size": {"pixels": 10**12}}, "working_size"),
        ({"working_size": {"pixels": 0}}, "working_size"),
        ({"working_size": {"stride": 0}}, "working_size"),
        ({"working_size": {"least": 10**9}}, "working_size"),
        ({"working_size": {"max_ratio": float("nan")}}, "working_size"),
        ({"working_size": {"pixels": "many"}}, "damaged|working_size"),
        ({"working_size": {"stride": 16.5}}, "working_size"),
    ],
)
def test_numbers_that_the_runtime_cannot_compute_with_are_refused(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        ModelCard.from_json(CARD.to_json() | wrong)


def test_a_centre_bias_with_nan_is_refused() -> None:
    bias = np.array([[0.0, np.nan], [0.0, 0.0]], np.float32)
    with pytest.raises(ModelError, match=r"center_bias|damaged"):
        ModelCard.from_json(replace(CARD, center_bias=bias).to_json())


def test_weights_in_another_file_are_refused(bright_file: Path, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(bright_file)
    path = tmp_path / "outside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(ModelError, match="another file"):
        read_card(path)


def test_a_model_that_gives_nan_is_an_error_and_not_a_map(bright_file: Path, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(bright_file)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor).copy()
        if values.dtype == np.float32:
            values.flat[0] = np.nan
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path := tmp_path / "nan.onnx")
    with pytest.raises(ModelError, match="NaN"):
        load(path, threads=1).predict(np.zeros((64, 64, 3), np.uint8))


def test_another_format_is_refused() -> None:
    with pytest.raises(ModelError, match="format 2"):
        ModelCard.from_json(CARD.to_json() | {"format": 2})


def test_the_card_is_read_from_the_file_as_onnx_wrote_it(bright_file: Path) -> None:
    import onnx

    expected = json.loads({entry.key: entry.value for entry in onnx.load(bright_file).metadata_props}["fastgaze"])
    assert read_card(bright_file).to_json() == expected


def test_a_file_that_is_no_model_is_refused_in_one_line(bright_file: Path, tmp_path: Path) -> None:
    content = bright_file.read_bytes()
    generator = np.random.default_rng(0)
    for length in (0, 1, 10, len(content) // 2, len(content) - 1):
        with pytest.raises(ModelError):
            parse_card(content[:length], "x")
    for _ in range(50):
        with pytest.raises(ModelError) as caught:
            parse_card(generator.bytes(200), "x")
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="cannot read"):
        read_card(tmp_path / "absent.onnx")


@pytest.mark.parametrize("path", sorted(BUNDLED.glob("*.onnx")), ids=lambda path: path.name)
def test_a_card_is_replaced_and_no_other_byte_changes(path: Path) -> None:
    content = path.read_bytes()
    card = parse_card(content, path.name)
    assert with_card(content, card) == content
    renamed = with_card(content, replace(card, name="other"))
    assert parse_card(renamed, "renamed").name == "other"
    assert with_card(renamed, card) == content


def test_what_a_model_is_called_scored_and_timed_is_not_its_identity(bright_file: Path) -> None:
    content = bright_file.read_bytes()
    card = parse_card(content, "m")
    for same in (replace(card, name="x"), replace(card, scores={"osie": {}}), replace(card, data="d", licence="MIT")):
        assert identity(with_card(content, same)) == identity(content)


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 3.0},
        {"temperature": 0.5},
        {"mean": (0.5, 0.5, 0.5)},
        {"std": (0.5, 0.5, 0.5)},
        {"working_size": WorkingSize(pixels=50_000)},
        {"center_bias": np.zeros((48, 64), np.float32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_model_computes_with_is_its_identity(change: dict[str, object], bright_file: Path) -> None:
    content = bright_file.read_bytes()
    card = parse_card(content, "m")
    assert identity(with_card(content, replace(card, **change))) != identity(content)  # type: ignore[arg-type]


def test_a_card_without_a_temperature_has_that_of_an_uncalibrated_model(bright_file: Path) -> None:
    card = read_card(bright_file)
    assert card.temperature == 1
    assert "temperature" not in card.to_json()
    calibrated = with_card(bright_file.read_bytes(), replace(card, temperature=0.5))
    assert parse_card(calibrated, "m").temperature == 0.5


def test_another_weight_is_another_model(bright_file: Path) -> None:
    import onnx

    graph = onnx.load(bright_file)
    values = onnx.numpy_helper.to_array(graph.graph.initializer[0]).copy()
    values.flat[0] += 1
    graph.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, graph.graph.initializer[0].name))
    assert identity(graph.SerializeToString()) != identity(bright_file.read_bytes())


def test_no_bundled_file_holds_a_time() -> None:
    for path in BUNDLED.glob("*.onnx"):
        assert b"_ms" not in path.read_bytes()[-60_000:]
        assert all("means" in facts for facts in read_card(path).scores.values())


def test_costs_are_stated_for_the_paper_s_size_and_for_the_working_size() -> None:
    for model in models():
        card = read_card(BUNDLED / f"{model.name}.onnx")
        assert model.working_size == card.working_size((480, 640))
        assert model.gflop_working == pytest.approx(card.gflop(model.working_size)) == pytest.approx(card.gflop_working)
        assert model.to_json()["working_size"] == {"width": model.working_size[1], "height": model.working_size[0]}


def test_times_lie_beside_the_models(bright_file: Path, tmp_path: Path) -> None:
    (tmp_path / "small.onnx").write_bytes(bright_file.read_bytes())
    write_index(tmp_path, "small")
    assert models(tmp_path)[0].cpu_ms is None
    write_times(tmp_path, {"small": 3.25}, {"machine": {}, "threads": 1})
    assert models(tmp_path)[0].cpu_ms == 3.25
    assert (tmp_path / "small.onnx").read_bytes() == bright_file.read_bytes()
