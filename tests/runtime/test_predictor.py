"""From a picture to a gaze map, on a network that looks at bright things."""

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fastgaze
from fastgaze.core.errors import ArgumentError, ImageError, ModelError
from fastgaze.core.pictures import Picture
from fastgaze.runtime import zoo
from fastgaze.runtime.card import read_card
from fastgaze.runtime.engines import TOLERANCE
from fastgaze.runtime.predictor import Predictor, load
from tests.photos import photo
from tests.small_models import bright_model


@pytest.mark.parametrize("size", [(240, 320), (600, 800), (90, 120), (400, 1600), (1600, 400)])
def test_the_peak_is_where_the_picture_is_bright(bright: Predictor, size: tuple[int, int]) -> None:
    spot = (size[1] // 4, size[0] // 3)
    gaze = bright.predict(photo(*size, spot))
    assert gaze.size == size
    peak = gaze.peaks(1)[0]
    assert np.hypot(peak.x - spot[0], peak.y - spot[1]) < 0.07 * max(size)


def test_the_prediction_equals_torch(bright: Predictor) -> None:
    array = photo()
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    normalised = torch.from_numpy(((array / 255 - mean) / std).astype(np.float32)).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = bright_model()(normalised)[0].numpy()
    assert np.abs(bright.predict(array).log_density - expected).max() < 2e-3


def test_path_bytes_image_and_array_agree(bright: Predictor, tmp_path: Path) -> None:
    array = photo(300, 400)
    path = tmp_path / "photo.png"
    Image.fromarray(array).save(path)
    with Image.open(path) as image:
        sources = (path, str(path), path.read_bytes(), image, array)
        maps = [bright.predict(source).log_density for source in sources]
    assert all(np.array_equal(other, maps[0]) for other in maps)


def test_the_map_is_a_density_at_any_size(bright: Predictor) -> None:
    for size in ((1, 1), (7, 5), (270, 480)):
        gaze = bright.predict(photo(), size=size)
        assert gaze.log_density.shape == size
        assert gaze.log_density.dtype == np.float32
        assert gaze.density.sum() == pytest.approx(1, abs=1e-5)
        assert gaze.picture_size == (240, 320)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_tiny_and_thin_pictures_work(bright: Predictor, size: tuple[int, int]) -> None:
    gaze = bright.predict(np.full((*size, 3), 128, np.uint8))
    assert gaze.size == size
    assert gaze.density.sum() == pytest.approx(1, abs=1e-5)
    assert gaze.peaks(2)
    assert gaze.crop("1:1")[0].mass > 0


def test_the_centre_bias_can_be_left_out_or_replaced(bright: Predictor) -> None:
    flat = np.full((240, 320, 3), 128, np.uint8)
    own, none = bright.predict(flat), bright.predict(flat, center_bias=None)
    assert own.log_density[120, 160] > own.log_density[0, 0] + 0.3
    assert np.abs(none.log_density[60:-60, 60:-60].max() - none.log_density[60:-60, 60:-60].min()) < 1e-4
    left = np.where(np.arange(64) < 32, -8.0, -12.0)[None].repeat(48, axis=0)
    assert bright.predict(flat, center_bias=left).mass((0, 0, 160, 240)) > 0.9
    with pytest.raises(ArgumentError, match="'screen', None"):
        bright.predict(flat, center_bias="centre")  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="centre bias"):
        bright.predict(flat, center_bias=np.zeros(3))


def test_a_jpeg_decoded_small_gives_nearly_the_same_map(bright: Predictor) -> None:
    array = photo(1500, 2000, (500, 500))
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "JPEG", quality=90)
    small, full = bright.predict(buffer.getvalue()), bright.predict(array)
    divergence = float((full.density * (full.log_density - small.log_density)).sum())
    assert divergence < 1e-3


def test_a_list_gives_a_list_of_the_same_maps(bright: Predictor, bright_file: Path) -> None:
    pictures = [photo(200 + 16 * i, 300, (40 + 25 * i, 60)) for i in range(5)]
    expected = [bright.predict(p).log_density for p in pictures]
    for found in (
        bright.predict(pictures),
        bright.predict(tuple(pictures)),
        fastgaze.predict(pictures, str(bright_file)),
    ):
        assert isinstance(found, list)
        assert all(np.array_equal(a.log_density, b) for a, b in zip(found, expected, strict=True))
    assert bright.predict([]) == []


def test_bgr_reaches_the_network(bright_file: Path) -> None:
    blue = photo()
    blue[:, :, :2] = 30
    model = load(bright_file, threads=1)
    expected = model.predict(blue).log_density
    assert np.array_equal(model.predict(blue[:, :, ::-1], bgr=True).log_density, expected)
    assert np.array_equal(model.predict([blue[:, :, ::-1]], bgr=True)[0].log_density, expected)
    assert np.array_equal(fastgaze.predict(blue[:, :, ::-1], str(bright_file), bgr=True).log_density, expected)


def test_reprs_are_one_short_line(bright: Predictor) -> None:
    view = bright.look(photo())
    for thing in (bright, view, view.at(), view.at().cut("1:1")):
        assert len(repr(thing)) < 120
        assert "bright" in repr(thing) or "Cut" in repr(thing)


def test_a_list_of_the_models_can_be_read() -> None:
    for model in fastgaze.models():
        assert model.name in repr(model)
        assert len(repr(model)) < 500


def test_threads_share_a_predictor(bright: Predictor) -> None:
    pictures = [photo(200 + 16 * i, 300, (40 + 25 * i, 60)) for i in range(8)]

    def predict(picture: np.ndarray) -> np.ndarray:
        return bright.predict(picture).log_density

    expected = [predict(picture) for picture in pictures]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(predict, pictures * 4))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected * 4, strict=True))


@pytest.mark.parametrize(("engine", "tolerance"), [("openvino", TOLERANCE), ("openvino-bf16", 0.2)])
def test_openvino_agrees_with_onnxruntime(bright: Predictor, bright_file: Path, engine: str, tolerance: float) -> None:
    pytest.importorskip("openvino")
    other = load(bright_file, engine, threads=1)
    for size in ((240, 320), (100, 700)):
        difference = other.predict(photo(*size)).log_density - bright.predict(photo(*size)).log_density
        assert np.abs(difference).max() < tolerance


def test_wrong_arguments_are_refused_in_one_line(bright: Predictor, bright_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no engine 'cuda'"):
        load(bright_file, "cuda")
    with pytest.raises(ArgumentError, match="threads=0"):
        load(bright_file, threads=0)
    with pytest.raises(ImageError):
        bright.predict(b"nothing")
    with pytest.raises(ModelError, match="no model file"):
        load(tmp_path / "absent.onnx")
    with pytest.raises(ModelError, match="no bundled model 'nope'"):
        load("nope")
    (tmp_path / "fake.onnx").write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match="not a fastgaze model"):
        load(tmp_path / "fake.onnx")


@pytest.mark.parametrize("size", [(0, 5), (-1, -5), (1,), (5, 6, 7), (5, np.nan), (5, np.inf), 5, "ab", (10**6, 10**6)])
def test_a_size_that_no_map_can_have_is_refused(size: object, bright: Predictor) -> None:
    with pytest.raises(ArgumentError, match=r"^size .* is not \(height, width\)"):
        bright.predict(photo(), size=size)  # type: ignore[call-overload]


def test_a_damaged_network_is_refused(bright_file: Path, tmp_path: Path) -> None:
    import onnx

    graph = onnx.load(bright_file)
    graph.graph.node[-1].op_type = "Nonsense"
    onnx.save(graph, tmp_path / "bad.onnx")
    with pytest.raises(ModelError, match="onnxruntime cannot load") as caught:
        load(tmp_path / "bad.onnx")
    assert "\n" not in str(caught.value)


def test_bundled_models_are_listed_found_and_described(bright_file: Path, tmp_path: Path) -> None:
    for name in ("small", "small.int8"):
        (tmp_path / f"{name}.onnx").write_bytes(bright_file.read_bytes())
    assert zoo.models(tmp_path) == []
    with pytest.raises(ModelError, match="no trained model is bundled yet"):
        zoo.default_name(tmp_path)
    zoo.write_index(tmp_path, default="small")
    assert [(model.name, model.default) for model in zoo.models(tmp_path)] == [("small", True), ("small.int8", False)]
    assert zoo.default_name(tmp_path) == "small"
    assert zoo.find("small.int8", tmp_path) == tmp_path / "small.int8.onnx"
    facts = zoo.describe("small", tmp_path)
    card = read_card(bright_file)
    for name in ("parameters", "maps", "gflop_640x480"):
        assert facts[name] == getattr(card, name)
    assert "gflop" not in facts, "a cost without its size"
    with pytest.raises(ModelError, match="default"):
        zoo.write_index(tmp_path, default="large")


def test_the_index_agrees_with_the_bundled_files() -> None:
    listed = {model.name for model in fastgaze.models()}
    assert listed == {path.name.removesuffix(".onnx") for path in zoo.BUNDLED.glob("*.onnx")}
    for model in fastgaze.models():
        card = read_card(zoo.find(model.name))
        assert (model.parameters, model.gflop_640x480) == (card.parameters, card.gflop_640x480)
        assert model.bytes == zoo.find(model.name).stat().st_size


def test_predicting_imports_no_torch(bright_file: Path) -> None:
    code = (
        "import sys, numpy, fastgaze\n"
        f"fastgaze.load({str(bright_file)!r}).predict(numpy.zeros((50, 60, 3), 'uint8')).overlay()\n"
        "print({'numpy', 'torch', 'onnx', 'scipy', 'matplotlib', 'av', 'starlette'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "{'numpy'}"


def test_one_look_serves_every_size_and_centre_bias(bright: Predictor) -> None:
    runs = []

    def engine(images: np.ndarray) -> Sequence[np.ndarray]:
        runs.append(1)
        return bright._engine(images)

    counted = Predictor(bright.card, engine)
    view = counted.look(photo())
    assert np.array_equal(view.at((30, 40)).log_density, bright.predict(photo(), (30, 40)).log_density)
    assert np.array_equal(view.at(None, None).log_density, bright.predict(photo(), None, None).log_density)
    view.at().overlay()
    assert len(runs) == 1
    assert set(view.milliseconds) == {"decode", "prepare", "network", "tail"}


def test_a_picture_that_is_shown_later_is_decoded_once(bright: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    decodings = []
    decode = Picture._decode

    def noted(self: Picture, size: tuple[int, int] | None) -> Image.Image:
        decodings.append(size)
        return decode(self, size)

    monkeypatch.setattr(Picture, "_decode", noted)
    buffer = io.BytesIO()
    Image.fromarray(photo(1500, 2000)).save(buffer, "JPEG")
    bright.look(buffer.getvalue(), at_least=(1200, 1600)).at().overlay()
    assert decodings == [(1200, 1600)]


def test_a_predictor_travels_to_other_processes(bright: Predictor) -> None:
    expected = bright.predict(photo()).log_density
    assert np.array_equal(pickle.loads(pickle.dumps(bright)).predict(photo()).log_density, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_predictor_survives_a_fork(bright_file: Path) -> None:
    code = (
        "import os, sys, numpy, fastgaze\n"
        f"model, picture = fastgaze.load({str(bright_file)!r}, threads=2), numpy.zeros((50, 60, 3), 'uint8')\n"
        "model.predict(picture)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if model.predict(picture).density.sum() > 0.99 else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


@pytest.mark.parametrize(
    ("old", "new"), [("densegaze-m", "large"), ("fastgaze-m", "default"), ("fastgaze-xs.int8", "tiny")]
)
def test_a_model_that_is_no_longer_bundled_names_its_successor(old: str, new: str) -> None:
    with pytest.raises(ModelError, match=rf"^{old} is no longer bundled; '{new}(\.int8)?' took its place$"):
        load(old)


def test_the_family_fits_into_a_small_package() -> None:
    assert {"large", "default", "small", "tiny"} <= {model.name for model in zoo.models()}
    assert len(zoo.models()) <= 8
    assert sum(path.stat().st_size for path in zoo.BUNDLED.rglob("*") if path.is_file()) < 12_000_000


@pytest.mark.parametrize(("width", "height", "most"), [(400, 300, 0.5), (640, 480, 0.85)])
def test_above_a_logo_on_a_plain_page_the_edge_is_not_the_hottest_place(width: int, height: int, most: float) -> None:
    # At 640x480 the logo's middle is in the outermost cells of the network's map, which has no maximum within a cell.
    page, middle = np.full((height, width, 3), 255, np.uint8), width // 2
    page[24:48, middle - 60 : middle + 60] = (200, 30, 30)
    page[30:42, middle - 45 : middle + 45] = 255
    density = load(threads=1).predict(page).density
    y, x = np.unravel_index(density.argmax(), density.shape)
    assert density[0].max() < most * density.max()
    assert 20 < y < 52
    assert abs(x - middle) < 80
