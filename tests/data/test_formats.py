"""Each reader on small files that the test itself writes in the published layout."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.data import formats
from fastgaze.data.fixations import from_lists
from fastgaze.data.formats import hdf5, load, mit1003, recognise
from fastgaze.data.formats.mat import read_mat
from fastgaze.data.formats.problems import Problems

Struct: TypeAlias = Mapping[str, "Matlab"]
Matlab: TypeAlias = str | float | np.ndarray | Struct | Sequence[Struct] | tuple["Matlab", ...]
"""Text, numbers, a struct, a struct array or a cell array."""
Save: TypeAlias = Callable[[Path, Struct], None]


def save_image(path: Path, size: tuple[int, int] = (48, 64), grey: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if grey else "RGB", (size[1], size[0]), 90).save(path)


def save_v73(path: Path, content: Struct) -> None:
    """Dicts (structs), lists of dicts (struct arrays), tuples (cells), text and arrays as MATLAB 7.3 writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in content.items():
            _put(file, file, name, value)
    with open(path, "r+b") as start:
        start.write(b"MATLAB 7.3 MAT-file")


def _put(file: h5py.File, parent: h5py.Group, name: str, value: Matlab) -> None:
    if isinstance(value, Mapping):
        group = parent.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for key, item in value.items():
            _put(file, group, key, item)
    elif isinstance(value, list):
        group = parent.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for key in value[0]:
            group.create_dataset(key, data=_references(file, [row[key] for row in value]), dtype=h5py.ref_dtype)
    elif isinstance(value, tuple):
        parent.create_dataset(name, data=_references(file, value), dtype=h5py.ref_dtype)
        parent[name].attrs["MATLAB_class"] = np.bytes_("cell")
    elif isinstance(value, str):
        parent.create_dataset(name, data=np.array([[ord(c)] for c in value], np.uint16))
        parent[name].attrs["MATLAB_class"] = np.bytes_("char")
    else:
        assert isinstance(value, float | np.ndarray)
        parent.create_dataset(name, data=np.atleast_2d(value).T)
        parent[name].attrs["MATLAB_class"] = np.bytes_("double")


def _references(file: h5py.File, values: Sequence[Matlab]) -> np.ndarray:
    group = file.require_group("#refs#")
    references = []
    for value in values:
        key = f"r{len(group)}"
        _put(file, group, key, value)
        references.append([group[key].ref])
    return np.array(references, dtype=h5py.ref_dtype)


def save_v5(path: Path, content: Struct) -> None:
    """The same content as a v5 file: tuples become cell arrays, lists of dicts struct arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {name: _v5(value) for name, value in content.items()}, do_compression=True)


def _v5(value: Matlab) -> object:
    if isinstance(value, Mapping):
        return {key: _v5(item) for key, item in value.items()}
    if isinstance(value, tuple):
        cell = np.empty((len(value), 1), dtype=object)
        for i, item in enumerate(value):
            cell[i, 0] = _v5(item)
        return cell
    if isinstance(value, list):
        array = np.empty((len(value), 1), dtype=[(key, object) for key in value[0]])
        for i, row in enumerate(value):
            for key, item in row.items():
                array[key][i, 0] = _v5(item)
        return array
    return value


both_versions = pytest.mark.parametrize("save", [save_v5, save_v73], ids=["v5", "v7.3"])


@both_versions
def test_salicon(tmp_path: Path, save: Save) -> None:
    save_image(tmp_path / "images" / "train" / "COCO_train2014_1.jpg", (480, 640))
    save_image(tmp_path / "images" / "val" / "COCO_val2014_7.jpg", (480, 640), grey=True)
    gaze = [{"fixations": np.array([[1.0, 1.0], [640.0, 480.0]])}, {"fixations": np.array([[9.0, 20.0]])}]
    save(
        tmp_path / "fixations" / "train" / "COCO_train2014_1.mat", {"gaze": gaze, "resolution": np.array([[480, 640]])}
    )
    save(
        tmp_path / "fixations" / "val" / "COCO_val2014_7.mat", {"gaze": [gaze[0]], "resolution": np.array([[480, 640]])}
    )
    data = load("auto", tmp_path)
    assert data.names == ("COCO_train2014_1", "COCO_val2014_7")
    # Pixels are counted from 1: the first one's centre is at 0.5, the last one is inside.
    np.testing.assert_allclose(data.fixations(0), [[0.5, 0.5], [639.5, 479.5], [8.5, 19.5]])
    assert data.observers(0).tolist() == [0, 0, 1]
    assert data.size(1) == (480, 640)
    assert data.image(1).shape == (480, 640, 3)
    one = load("salicon", tmp_path / "fixations" / "val")
    assert one.names == ("COCO_val2014_7",)
    assert one.paths[0] == tmp_path / "images" / "val" / "COCO_val2014_7.jpg"


@both_versions
@pytest.mark.parametrize("layout", [("stimuli", "fixations.mat"), ("data/stimuli", "data/eye/fixations.mat")])
def test_osie_and_eyecrowd(tmp_path: Path, save: Save, layout: tuple[str, str]) -> None:
    for name in ("1001", "1002"):
        save_image(tmp_path / layout[0] / f"{name}.jpg", (60, 80))
    first: Matlab = ({"fix_x": np.array([10.5, 20.0]), "fix_y": np.array([5.0, 6.0])}, {"fix_x": 79.0, "fix_y": 59.0})
    second: Matlab = ({"fix_x": np.empty((1, 0)), "fix_y": np.empty((1, 0))}, {"fix_x": 90.0, "fix_y": 1.0})
    save(
        tmp_path / layout[1],
        {"fixations": ({"img": "1001.jpg", "subjects": first}, {"img": "1002.jpg", "subjects": second})},
    )
    assert recognise(tmp_path) == "osie"
    for name in ("osie", "eyecrowd"):
        data = load(name, tmp_path)
        assert data.names == ("1001", "1002")
        np.testing.assert_allclose(data.fixations(0), [[10.5, 5], [20.0, 6], [79.0, 59]])
        assert data.observers(0).tolist() == [0, 0, 1]
        assert data.size(0) == (60, 80)
        assert len(data.fixations(1)) == 0  # one observer saw nothing, the other looked past the image


@both_versions
@pytest.mark.parametrize("root", [".", "trainSet"])
def test_cat2000(tmp_path: Path, save: Save, root: str) -> None:
    for category, number in (("Action", "001"), ("Sketch", "003"), ("Sketch", "004")):
        save_image(tmp_path / root / "Stimuli" / category / f"{number}.jpg", (54, 96))
    save_image(tmp_path / root / "Stimuli" / "Action" / "Output" / "001_SaliencyMap.jpg", (54, 96))
    fixated = np.zeros((54, 96))
    fixated[3, 90] = fixated[53, 0] = 1
    save(tmp_path / root / "FIXATIONLOCS" / "Action" / "001.mat", {"fixLocs": fixated})
    save(tmp_path / root / "FIXATIONLOCS" / "Sketch" / "003.mat", {"fixLocs": 0 * fixated})
    data = load("auto", tmp_path)
    assert data.names == ("Action-001", "Sketch-003", "Sketch-004")
    np.testing.assert_allclose(data.fixations(0), [[90.5, 3.5], [0.5, 53.5]])
    assert data.observers(0).tolist() == [-1, -1]
    assert data.size(2) == (54, 96)
    assert [len(data.fixations(i)) for i in range(3)] == [2, 0, 0]


def gaze_path(places: Sequence[tuple[float, float]], samples: int = 60) -> np.ndarray:
    """Raw gaze that rests at each place and jumps to the next within ten samples."""
    pieces = []
    for i, place in enumerate(places):
        pieces.append(np.tile(place, (samples, 1)) + 0.2 * np.sin(np.arange(samples))[:, None])
        if i + 1 < len(places):
            way = (1 - np.cos(np.linspace(0, np.pi, 10))) / 2
            pieces.append(np.array(place) + way[:, None] * (np.array(places[i + 1]) - place))
    return np.concatenate(pieces)


def test_raw_gaze_is_cut_into_fixations_at_saccades() -> None:
    places = [(500.0, 380.0), (200.0, 100.0), (800.0, 600.0), (810.0, 200.0)]
    np.testing.assert_allclose(mit1003.find_fixations(gaze_path(places)), places, atol=2)
    resting = gaze_path(places[:1], 300)
    np.testing.assert_allclose(mit1003.find_fixations(resting), places[:1], atol=1)
    assert len(mit1003.find_fixations(np.empty((0, 2)))) == 0
    blink = gaze_path(places)
    blink[20:25] = np.nan
    assert np.isfinite(mit1003.find_fixations(blink)).all()


def test_a_rest_shorter_than_fifty_milliseconds_is_no_fixation() -> None:
    pieces = [gaze_path([(100.0, 100.0), (400.0, 100.0)])[:70], np.tile((400.0, 100.0), (4, 1))]
    jump = gaze_path([(400.0, 100.0), (700.0, 500.0)])[60:]
    found = mit1003.find_fixations(np.concatenate([*pieces, jump]))
    np.testing.assert_allclose(found, [(100, 100), (700, 500)], atol=2)


@both_versions
def test_mit1003_from_raw_gaze(tmp_path: Path, save: Save) -> None:
    name = "i" + 69 * "x"  # MATLAB cuts the variable's name to 63 letters
    save_image(tmp_path / "ALLSTIMULI" / f"{name}.jpeg", (768, 1024))
    for observer, place in (("ajs", (200.0, 100.0)), ("CNG", (-50.0, 900.0))):
        eye = np.hstack([gaze_path([(512.0, 384.0), place, (300.0, 300.0)]), np.ones((200, 1))])
        save(tmp_path / "DATA" / observer / f"{name}.mat", {name[:63]: {"DATA": {"eyeData": eye}, "imgName": name}})
    data = load("auto", tmp_path)
    assert data.names == (name,)
    assert data.size(0) == (768, 1024)
    # CNG comes first; the first fixation, on the cross, is left out, and so is what lies outside.
    np.testing.assert_allclose(data.fixations(0), [(300, 300), (200, 100), (300, 300)], atol=2)
    assert data.observers(0).tolist() == [0, 1, 1]


def test_mit1003_from_its_fixation_maps(tmp_path: Path) -> None:
    save_image(tmp_path / "ALLSTIMULI" / "street.jpeg", (64, 96))
    points = np.zeros((64, 96), np.uint8)
    points[10, 20] = points[40, 70] = 255
    (tmp_path / "ALLFIXATIONMAPS").mkdir()
    Image.fromarray(points).save(tmp_path / "ALLFIXATIONMAPS" / "street_fixPts.jpg", quality=95)
    data = load("mit1003", tmp_path)
    np.testing.assert_allclose(data.fixations(0), [[20.5, 10.5], [70.5, 40.5]])
    assert data.observers(0).tolist() == [-1, -1]


def test_mit300_has_images_only(tmp_path: Path) -> None:
    for i in range(3):
        save_image(tmp_path / "BenchmarkIMAGES" / f"i{i}.jpg")
    data = load("auto", tmp_path)
    assert data.names == ("i0", "i1", "i2")
    assert len(data.x) == 0
    assert data.size(2) == (48, 64)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_users_own_folder(tmp_path: Path, separator: str) -> None:
    save_image(tmp_path / "street.jpg")
    save_image(tmp_path / "inside" / "room.png", grey=True)
    save_image(tmp_path / "nobody.webp")
    rows = [
        "Image,X,Y,Observer",
        "street.jpg,10.5,20,anna",
        "street,3,4,bert",
        "inside/room.png,70,1,anna",
        "",
        "./street.jpg,1,2,",
    ]
    text = "\n".join(row.replace(",", separator) for row in rows)
    (tmp_path / "fixations.csv").write_text(text, encoding="utf-8-sig")
    data = load("auto", tmp_path)
    assert data.names == ("inside/room", "nobody", "street")
    np.testing.assert_allclose(data.fixations(2), [[10.5, 20], [3.0, 4], [1.0, 2]])
    assert data.observers(2).tolist() == [0, 1, -1]
    assert len(data.fixations(0)) == len(data.fixations(1)) == 0


def test_a_users_folder_without_observers_and_with_an_images_folder(tmp_path: Path) -> None:
    save_image(tmp_path / "images" / "a.jpg")
    save_image(tmp_path / "images" / "a.png")
    (tmp_path / "fixations.csv").write_text("image,x,y\na.jpg,1,2\nimages/a.png,3,4\n")
    data = load("folder", tmp_path)
    assert data.names == ("a.jpg", "a.png")
    np.testing.assert_allclose(data.fixations(1), [[3, 4]])
    assert data.observer.tolist() == [-1, -1]


def test_lines_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    save_image(tmp_path / "a.jpg")
    (tmp_path / "fixations.csv").write_text("image,x,y\na.jpg,1,2\na.jpg,left,2\nb.jpg,1,1\nb.jpg,1,1\na.jpg\n")
    with pytest.raises(DataError, match="line 3"):
        load("folder", tmp_path)
    problems = Problems(lenient=True)
    assert len(load("folder", tmp_path, problems).x) == 1
    assert [p.split(": ")[1].split(" ")[1] for p in problems.found] == ["3", "4", "6"]
    (tmp_path / "fixations.csv").write_text("picture,x,y\n")
    with pytest.raises(DataError, match="no column image"):
        load("folder", tmp_path)


def test_pysaliency_files_are_read_and_written(tmp_path: Path) -> None:
    save_image(tmp_path / "photos" / "a.png")
    save_image(tmp_path / "photos" / "b.png", (30, 20))
    paths = [tmp_path / "photos" / f for f in ("a.png", "b.png")]
    data = from_lists(
        ["a", "b"], paths, [(48, 64), (30, 20)], [[[1.5, 2], [99.0, 1]], [[3.0, 4], [5.0, 6]]], [[0, 1], [2, 0]]
    )
    hdf5.write(tmp_path / "out", data)
    again = load("auto", tmp_path / "out")
    assert again.names == ("a", "b")
    assert [p.resolve() for p in again.paths] == paths
    for i in range(2):
        np.testing.assert_array_equal(again.fixations(i), data.fixations(i))
        np.testing.assert_array_equal(again.observers(i), data.observers(i))
        assert again.size(i) == data.size(i)


def test_pysaliency_scanpaths_are_read(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    hdf5.write(tmp_path, from_lists(["a"], [tmp_path / "a.png"], [(48, 64)], [[]]))
    with h5py.File(tmp_path / "fixations.hdf5", "w") as file:
        file.attrs["type"], file.attrs["version"] = np.bytes_("FixationTrains"), np.bytes_("1.2")
        file["train_xs"] = [[1.0, 2.0, np.nan], [7.0, np.nan, np.nan]]
        file["train_ys"] = [[3.0, 4.0, np.nan], [8.0, np.nan, np.nan]]
        file["train_ns"], file["train_subjects"] = [0, 0], [4, 5]
    data = load("hdf5", tmp_path)
    np.testing.assert_array_equal(data.fixations(0), [[1, 3], [2, 4], [7, 8]])
    assert data.observers(0).tolist() == [4, 4, 5]


def test_unknown_layouts_and_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data at"):
        load("auto", tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no known layout"):
        load("auto", tmp_path)
    with pytest.raises(ArgumentError, match=r"no layout 'coco'; choose from auto, npz"):
        load("coco", tmp_path)
    for name in formats.FORMATS:
        with pytest.raises(DataError) as error:
            load(name, tmp_path)
        assert "\n" not in str(error.value)
    (tmp_path / "bad.mat").write_bytes(b"nothing of MATLAB" * 40)
    (tmp_path / "cut.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    for file in ("bad.mat", "cut.mat", "missing.mat"):
        with pytest.raises(DataError, match=file):
            read_mat(tmp_path / file)
    for content in (b"PK", b"", b"\x93NUMPY"):
        (tmp_path / "fixations.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read .*fixations\.npz"):
            load("npz", tmp_path)
    np.savez(tmp_path / "fixations.npz", name=["a"], width=[4, 4], height=[3], start=[0, 0], x=[], y=[], observer=[])
    with pytest.raises(DataError, match="of one length"):
        load("npz", tmp_path)
    np.savez(tmp_path / "fixations.npz", name=["a"], x=[1.0])
    with pytest.raises(DataError, match="lacks width, height, start, y, observer"):
        load("npz", tmp_path)


def test_a_damaged_file_among_good_ones_is_noted_when_asked(tmp_path: Path) -> None:
    gaze: Struct = {"gaze": [{"fixations": np.array([[1.0, 1.0]])}], "resolution": np.array([[480, 640]])}
    save_v5(tmp_path / "fixations" / "train" / "a.mat", gaze)
    (tmp_path / "fixations" / "train" / "b.mat").write_bytes(b"damaged" * 50)
    save_v5(tmp_path / "fixations" / "train" / "c.mat", {"something": 1.0})
    with pytest.raises(DataError, match=r"b\.mat"):
        load("salicon", tmp_path)
    problems = Problems(lenient=True)
    assert load("salicon", tmp_path, problems).names == ("a",)
    assert ["b.mat" in problems.found[0], "c.mat" in problems.found[1]] == [True, True]


def test_layouts_are_documented_for_every_format() -> None:
    assert set(formats.LAYOUTS) == {
        "npz",
        "folder",
        "salicon",
        "mit1003",
        "cat2000",
        "mit300",
        "osie",
        "eyecrowd",
        "hdf5",
    }
    assert json.dumps(formats.LAYOUTS)
