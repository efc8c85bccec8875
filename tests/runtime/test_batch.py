"""Batch: right rows, bad images as rows, jobs that are continued, and errors that say what to do."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Document
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.batch import BatchOptions, run
from fastgaze.runtime.batch.job import Shard, find_images, open_job
from fastgaze.runtime.batch.local import _CRASH, _KILL, _Pool
from fastgaze.runtime.batch.store import Folder, legible
from fastgaze.runtime.batch.work import DIED, ShardWorker, WorkerSetup
from fastgaze.runtime.card import WorkingSize, parse_card, with_card
from fastgaze.runtime.predictor import load
from tests.runtime.batches import fill, make_picture, read_rows
from tests.small_models import bright_model


def _work(model: str, output: Path, options: BatchOptions) -> ShardWorker:
    return ShardWorker(WorkerSetup(str(output), Path(model).read_bytes(), options))


def test_rows_say_where_the_bright_square_is_and_which_images_are_bad(images: Path, model: str, tmp_path: Path) -> None:
    options = BatchOptions(ratios=("1:1", "4:3"), density=(12, 16), shard=15)
    summary = run(str(images), str(tmp_path / "out"), model, options, workers=1)
    assert (summary.images, summary.done, summary.errors) == (43, 43, 2)
    assert set(summary.milliseconds) == {"read", "decode", "prepare", "network", "tail", "describe", "write"}
    rows = {Path(row["path"]).name: row for row in read_rows(tmp_path / "out")}
    assert len(rows) == 43
    for name in ("broken.jpg", "text.png"):
        assert "\n" not in rows[name]["error"]
        assert rows[name]["picture_size"] is rows[name]["peaks"] is rows[name]["log_density"] is None
    row = rows["00005.jpg"]
    assert row["error"] is None
    assert row["picture_size"] == {"width": 128, "height": 96}
    assert abs(row["peaks"][0]["x"] - (8 + 65 + 12)) < 10
    assert abs(row["peaks"][0]["y"] - (8 + 35 + 12)) < 10
    assert len(row["log_density"]) == 12 * 16
    assert abs(np.exp(np.array(row["log_density"], np.float64)).sum() - 1) < 1e-3
    assert [crop["ratio"] for crop in row["crops"]] == ["1:1", "4:3"]
    assert row["crops"][0]["windows"][0]["gain"] >= 0


def test_a_row_says_what_the_library_says(images: Path, model: str, tmp_path: Path) -> None:
    path = images / "below" / "wide.png"
    _work(model, tmp_path, BatchOptions(ratios=("1:1", "4:3"), crops=2, peaks=2))(Shard("part.parquet", (str(path),)))
    row = read_rows(tmp_path)[0]
    said: Document = load(model, threads=1).predict(path).to_json(peaks=2, ratios=("1:1", "4:3"), n=2)
    assert row["picture_size"] == said["picture_size"] == {"width": 900, "height": 300}
    assert row["bits"] == pytest.approx(said["bits"])
    for found, expected in zip(row["peaks"], said["peaks"], strict=True):
        assert found == pytest.approx(expected)
    for found, expected in zip(row["crops"], said["crops"], strict=True):
        assert found["ratio"] == expected["ratio"]
        for window, other in zip(found["windows"], expected["windows"], strict=True):
            assert window["box"] == other["box"]
            assert set(window) == set(other), "a column for everything that a window says"
            for name in set(window) - {"box"}:
                assert window[name] == pytest.approx(other[name])


def test_a_job_is_continued_by_a_model_that_computes_the_same_and_by_no_other(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 2), str(tmp_path / "out")
    run(str(folder), output, model, workers=1)
    content = Path(model).read_bytes()
    card = parse_card(content, "model")
    again = tmp_path / "again.onnx"
    again.write_bytes(with_card(content, replace(card, name="again", scores={"osie": {"auc": 0.9}})))
    assert run(str(folder), output, str(again), workers=1).done == 0
    again.write_bytes(with_card(content, replace(card, sigma=card.sigma + 1)))
    with pytest.raises(ArgumentError, match=r"other settings \(model\)"):
        run(str(folder), output, str(again), workers=1)
    export_onnx(bright_model(gain=3.0, sigma=4.0), again, Facts("tiny", working_size=WorkingSize(pixels=96 * 128)))
    with pytest.raises(ArgumentError, match=r"other settings \(model\)"):
        run(str(folder), output, str(again), workers=1)


def test_a_job_of_a_version_with_other_columns_is_not_continued(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 2), str(tmp_path / "out")
    run(str(folder), output, model, workers=1)
    settings = tmp_path / "out" / "_job.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"format": 2}))
    with pytest.raises(ArgumentError, match=r"of another version of fastgaze.*give a new folder"):
        run(str(folder), output, model, workers=1)


def test_a_second_start_does_nothing_and_a_grown_folder_only_what_is_new(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 12), str(tmp_path / "out")
    run(str(folder), output, model, BatchOptions(shard=5), workers=1)
    files = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert run(str(folder), output, model, BatchOptions(shard=5), workers=1).done == 0
    make_picture(77).save(folder / "00000a.jpg")
    grown = run(str(folder), output, model, BatchOptions(shard=5), workers=1)
    assert (grown.images, grown.done) == (13, 1)
    assert Counter(row["path"] for row in read_rows(output)) == Counter(str(path) for path in folder.iterdir())
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert files.items() <= after.items()


def test_a_job_that_is_run_again_counts_the_errors_of_all_its_runs(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 5), tmp_path / "out"
    for name in ("00001", "00004"):
        (folder / f"{name}.jpg").write_bytes(b"words")
    options = BatchOptions(shard=2)
    assert run(str(folder), str(output), model, options, workers=1).errors == 2
    again = run(str(folder), str(output), model, options, workers=1)
    assert (again.done, again.errors) == (0, 2)
    (output / "part-0000-000000.parquet").unlink()
    repaired = run(str(folder), str(output), model, options, workers=1)
    assert (repaired.done, repaired.errors) == (2, 2)
    (output / "part-0000-000001.parquet").write_bytes(b"words")
    with pytest.raises(DataError, match=r"part-0000-000001\.parquet is damaged; remove it"):
        run(str(folder), str(output), model, options, workers=1)


def test_a_job_runs_in_the_engine_that_is_asked_for_and_is_continued_by_it_alone(model: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    folder = fill(tmp_path / "images", 2)
    run(str(folder), str(tmp_path / "one"), model, workers=1)
    run(str(folder), str(tmp_path / "other"), model, workers=1, engine="openvino")
    one, other = read_rows(tmp_path / "one"), read_rows(tmp_path / "other")
    assert [row["bits"] for row in one] == pytest.approx([row["bits"] for row in other], abs=1e-2)
    with pytest.raises(ArgumentError, match="no engine 'cuda'"):
        ShardWorker(WorkerSetup(str(tmp_path), Path(model).read_bytes(), BatchOptions(), "cuda"))
    with pytest.raises(ArgumentError, match=r"other settings \(engine\)"):
        run(str(folder), str(tmp_path / "other"), model, workers=1)
    settings = json.loads((tmp_path / "one" / "_job.json").read_text())
    del settings["engine"]
    (tmp_path / "one" / "_job.json").write_text(json.dumps(settings))
    assert run(str(folder), str(tmp_path / "one"), model, workers=1).done == 0
    with pytest.raises(ArgumentError, match="no engine 'cuda'"):
        run(str(folder), str(tmp_path / "new"), model, engine="cuda")
    assert not (tmp_path / "new").exists()


def test_only_missing_shards_are_done_again(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 12), tmp_path / "out"
    run(str(folder), str(output), model, BatchOptions(shard=5), workers=1)
    before = read_rows(output)
    (output / "part-0000-000001.parquet").unlink()
    assert run(str(folder), str(output), model, BatchOptions(shard=5), workers=1).done == 5
    assert read_rows(output) == before


def test_another_job_in_the_same_folder_is_refused(images: Path, model: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 2)
    run(str(folder), str(tmp_path / "out"), model, BatchOptions(peaks=2), workers=1)
    with pytest.raises(
        ArgumentError, match=r"a job with other settings \(ratios, peaks\); continue with the same ones"
    ):
        run(str(folder), str(tmp_path / "out"), model, BatchOptions(peaks=3, ratios=("1:1",)), workers=1)
    (tmp_path / "mine").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "mine" / "data.parquet")
    with pytest.raises(DataError, match="something else"):
        run(str(folder), str(tmp_path / "mine"), model, workers=1)


def test_heat_maps_of_an_earlier_run_and_hidden_files_are_no_inputs(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.gaze.png", ".b.jpg", ".hidden/c.jpg", "below/d.PNG", "below/d.gaze.PNG", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert find_images(str(tmp_path)) == [str(tmp_path / "a.jpg"), str(tmp_path / "below" / "d.PNG")]


def test_inputs_are_folders_globs_lists_parquet_or_one_image(images: Path, tmp_path: Path) -> None:
    everything = find_images(str(images))
    assert len(everything) == 43
    assert everything == sorted(everything)
    assert len(find_images(str(images / "0000*.jpg"))) == 10
    some = [str(images / "00003.jpg"), str(images / "00001.jpg"), str(images / "00003.jpg")]
    for name in ("list.txt", "list.lst"):
        (tmp_path / name).write_text("\n".join(some) + "\n\n")
    pq.write_table(pa.table({"path": some}), tmp_path / "list.parquet")
    assert find_images(str(tmp_path / "list.txt")) == some[:2]
    assert find_images(str(tmp_path / "list.lst")) == some[:2]
    assert find_images(str(tmp_path / "list.parquet")) == some[:2]
    assert find_images(some[0]) == some[:1]
    pq.write_table(pa.table({"name": some}), tmp_path / "other.parquet")
    for source, message in [
        (tmp_path / "nothing", "give a folder"),
        (tmp_path / "other.parquet", "column 'path'"),
        (tmp_path, "no images"),
    ]:
        with pytest.raises(DataError, match=message):
            find_images(str(source))


def test_a_name_that_looks_like_a_glob_is_taken_for_what_it_is(tmp_path: Path) -> None:
    found = [str(path) for path in sorted(fill(tmp_path / "b[1]", 2).iterdir())]
    (tmp_path / "b1").mkdir()
    make_picture(0).save(tmp_path / "b1" / "other.jpg")
    assert find_images(str(tmp_path / "b[1]")) == found
    assert find_images(f"{tmp_path}/b[1]/00001.jpg") == found[1:]
    assert find_images(f"{tmp_path}/b[12]/*.jpg") == [str(tmp_path / "b1" / "other.jpg")]


def test_a_list_in_another_encoding_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes("a.jpg\ncafé.jpg".encode("latin-1"))
    with pytest.raises(DataError, match=r"list\.txt is not a list in UTF-8 \(byte 9\)"):
        find_images(str(tmp_path / "list.txt"))


@pytest.mark.parametrize("content", [b"", b"{", b"7", b"\xff\xfe"])
@pytest.mark.parametrize("name", ["_job.json", "_paths-0000.parquet"])
def test_a_damaged_job_is_one_error_that_names_the_file(name: str, content: bytes, model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 1), tmp_path / "out"
    open_job(Folder(str(output)), find_images(str(folder)), Path(model).read_bytes(), BatchOptions())
    (output / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is damaged.* new folder"):
        run(str(folder), str(output), model, workers=1)


def test_names_that_are_not_utf_8_are_read_and_written_legibly(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 1), str(tmp_path / "out")
    content = (folder / "00000.jpg").read_bytes()
    try:
        Path(os.fsdecode(os.fsencode(folder / "caf") + b"\xe9.jpg")).write_bytes(content)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    Path(os.fsdecode(os.fsencode(folder / "caf") + b"\xe8.jpg")).write_bytes(content[:200])
    (folder / r"caf\xea.jpg").write_bytes(content)
    summary = run(str(folder), output, model, workers=1)
    assert (summary.images, summary.errors) == (4, 1)
    failed = {Path(row["path"]).name: row["error"] is not None for row in read_rows(output)}
    assert failed == {"00000.jpg": False, r"caf\xe8.jpg": True, r"caf\xe9.jpg": False, r"caf\xea.jpg": False}
    assert run(str(folder), output, model, workers=1).done == 0


def test_an_error_that_names_a_file_not_in_utf_8_still_makes_a_row(model: str, tmp_path: Path) -> None:
    pipe = os.fsdecode(os.fsencode(tmp_path / "pipe") + b"\xe9.jpg")
    try:
        os.mkfifo(pipe)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    _work(model, tmp_path / "out", BatchOptions())(Shard("part.parquet", (legible(pipe),)))
    assert "not a regular file" in read_rows(tmp_path / "out")[0]["error"]


def test_reads_and_writes_through_fsspec(model: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for index in range(3):
        with memory.open(f"/photos/{index}.png", "wb") as file:
            make_picture(index).save(file, "PNG")
    found = find_images("memory://photos")
    assert found == [f"memory:///photos/{index}.png" for index in range(3)]
    worker = ShardWorker(WorkerSetup("memory://rows", Path(model).read_bytes(), BatchOptions()))
    done = worker(Shard("part-0.parquet", (*found, "memory:///photos/none.png")))
    assert (done.images, done.errors) == (4, 1)
    rows = pq.read_table(memory.open("/rows/part-0.parquet", "rb")).to_pylist()
    assert [row["path"] for row in rows] == [*found, "memory:///photos/none.png"]
    assert Folder("memory://rows").names() == {"part-0.parquet"}
    memory.rm("/photos", recursive=True)
    memory.rm("/rows", recursive=True)


def test_an_image_over_which_workers_crash_gets_a_row_that_says_so(model: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 3)
    worker = _work(model, tmp_path / "out", BatchOptions())
    shard = Shard("part.parquet", tuple(map(str, sorted(folder.iterdir()))))
    pool = _Pool([shard], WorkerSetup("", b"", BatchOptions()))
    assert pool._after_death(shard, -1, _CRASH) == shard
    assert pool._after_death(shard, 1, _CRASH) == shard
    again = pool._after_death(shard, 1, _CRASH)
    assert worker(again).errors == 1
    assert [row["error"] for row in read_rows(tmp_path / "out")] == [None, DIED, None]
    assert pool._after_death(again, 1, _CRASH) == pool._after_death(again, 1, _CRASH) == again
    with pytest.raises(DataError, match="keep dying"):
        pool._after_death(again, 1, _CRASH)


def test_a_good_image_is_not_given_up_because_its_worker_was_killed_twice(tmp_path: Path) -> None:
    shard = Shard("part.parquet", ("a.jpg", "b.jpg"))
    pool = _Pool([shard], WorkerSetup("", b"", BatchOptions()))
    assert all(pool._after_death(shard, 1, _KILL) == shard for _ in range(3))
    assert pool._after_death(shard, 1, _KILL).skip == {1}


def test_a_second_job_on_the_same_folder_is_told_to_wait(images: Path, model: str, tmp_path: Path) -> None:
    with Folder(str(tmp_path)).locked(), pytest.raises(DataError, match="another job is writing"):
        run(str(images), str(tmp_path), model, workers=1)
    assert run(str(images), str(tmp_path), model, workers=1).done > 0


def test_an_address_that_makes_no_sense_is_a_row(images: Path, model: str, tmp_path: Path) -> None:
    good = str(images / "00001.jpg")
    (tmp_path / "list.txt").write_text(f"nosuch://host/x.jpg\n{good}\nhttp://[bad/x.jpg\n")
    summary = run(str(tmp_path / "list.txt"), str(tmp_path / "out"), model, workers=1)
    assert (summary.done, summary.errors) == (3, 2)
    rows = {row["path"]: row["error"] for row in read_rows(tmp_path / "out")}
    assert rows[good] is None
    assert "nosuch" in rows["nosuch://host/x.jpg"]


def test_a_shard_that_was_emptied_is_done_again(model: str, tmp_path: Path) -> None:
    folder, out = fill(tmp_path / "images", 4), tmp_path / "out"
    options = BatchOptions(shard=2)
    run(str(folder), str(out), model, options, workers=1)
    next(out.glob("part-*-000001.parquet")).write_bytes(b"")
    assert run(str(folder), str(out), model, options, workers=1).done == 2
    assert len(read_rows(out)) == 4


def test_an_output_that_cannot_be_written_is_one_error(images: Path, model: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot write"):
        run(str(images), "/proc/nowhere", model, workers=1)


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    model = "default"  # larger than a pipe holds
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom fastgaze.runtime.batch import run\nrun(*sys.argv[1:], workers=1)\n")
    arguments = [sys.executable, str(script), str(fill(tmp_path / "images", 1)), str(tmp_path / "out"), model]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 1
    assert "if __name__ == '__main__'" in result.stderr.splitlines()[-1]


def test_options_out_of_range_are_refused(images: Path, model: str, tmp_path: Path) -> None:
    for wrong in ({"shard": 0}, {"peaks": 0}, {"ratios": ("wide",)}, {"density": (0, 5)}):
        with pytest.raises(ArgumentError):
            BatchOptions(**wrong)
    with pytest.raises(ArgumentError, match="no runner 'spark'"):
        run(str(images), str(tmp_path), model, runner="spark")
    with pytest.raises(ArgumentError, match="address"):
        run(str(images), str(tmp_path), model, address="auto")
