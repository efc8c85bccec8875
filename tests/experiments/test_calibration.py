"""The script behind docs/calibrate.md."""

from dataclasses import replace
from pathlib import Path

from experiments import calibration
from experiments.common import read_record
from fastgaze.runtime.card import read_card, with_card


def test_a_model_is_calibrated_on_some_images_and_scored_on_others(
    small_data: Path, bright_file: Path, tmp_path: Path
) -> None:
    out, unsure = tmp_path / "calibration.json", tmp_path / "unsure.onnx"
    unsure.write_bytes(with_card(bright_file.read_bytes(), replace(read_card(bright_file), temperature=0.2)))
    where = ["--data", str(small_data), "--set", "salicon/train", "--out", str(out)]
    calibration.main([*where, "--model", str(unsure), "--images", "12", "--limit", "4"])
    record = read_record(out)
    assert record is not None
    (row,) = record["rows"]
    assert (row["images"], row["model"]) == (12, "bright")
    # People look at the only bright thing, of which the model is far from sure enough.
    assert row["after"] > row["before"]
    assert row["held_out"]["log_likelihood_bits"] > record["before"]["log_likelihood_bits"]
