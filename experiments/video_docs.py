"""Writes what was measured on video into docs/video.md, between its marks.

    python -m experiments.video_docs

Reads results/video_reframe.json, video_cuts.json, video_temporal.json and video_roi.json.
"""

from typing import Any

from experiments.common import DOCS, RESULTS, read_record
from experiments.pages import fill, table

PAGE = DOCS / "video.md"
METHODS = {
    "ours": "fastgaze, chosen on the others",
    "shipped": "fastgaze as it ships",
    "center": "window in the middle",
    "pyautoflip detection": "pyautoflip, faces and objects (its default), cut to the ratio",
    "pyautoflip detection, with bars": "the same as it shows them, often wider than the ratio, with blurred bars",
    "pyautoflip saliency": "pyautoflip, saliency",
    "optimum": "best window of every frame by itself",
}
MAPS = {
    "still": "every frame by itself",
    "chosen": "fastgaze with smoothing and motion",
    "unisal still": "UNISAL, still",
    "unisal video": "UNISAL, video mode",
}


def reframe(record: dict[str, Any]) -> str:
    """Fixations kept and movement."""
    means, rows = record["means"], []
    for key, name in METHODS.items():
        if all(key in means[ratio] for ratio in ("9:16", "1:1")):
            found = [means[ratio][key] for ratio in ("9:16", "1:1")]
            cells = [[f"{each['kept']:.3f}", f"{each['speed']:.3f}, {each['jerk']:.2f}"] for each in found]
            rows.append([name, *cells[0], *cells[1]])
    count = len({row["sequence"] for row in record["sequences"]})
    head = ["window", "kept at 9:16", "speed, jerk", "kept at 1:1", "speed, jerk"]
    text = (
        f"Share of the fixations of 32 viewers that the window keeps, mean over {count} sequences; speed in widths of "
        "the frame per second, jerk in widths per second cubed. The price of a move and the share of the middle were "
        f"chosen {count} times, each time on all sequences but one, and that one was scored with them; the second row "
        "has what all sequences together choose, which is what ships and has seen them all. That the middle counts, "
        "and how wide it is, was decided with all sequences in view. "
    )
    text += " ".join(_against_middle(record["sequences"], ratio) for ratio in ("9:16", "1:1"))
    if any("pyautoflip detection" in means[ratio] for ratio in means):
        text += " pyautoflip 0.2.1 had MediaPipe's face detector, because the weights of its own could not be fetched."
    return f"{text} (`python -m experiments.video_reframe`)\n\n{table(head, rows)}"


def _against_middle(sequences: list[dict[str, Any]], ratio: str) -> str:
    """How often the window in the middle keeps more."""
    gains = [row["ours"]["kept"] - row["center"]["kept"] for row in sequences if row["ratio"] == ratio]
    ahead = sum(gain > 0 for gain in gains)
    return (
        f"At {ratio} ours keeps more than the middle in {ahead} of {len(gains)} sequences, from {min(gains):+.3f} to "
        f"{max(gains):+.3f}."
    )


def cuts(record: dict[str, Any]) -> str:
    """Cuts found and false ones."""
    found, false, minutes = record["cuts"], record["camera_work"]["false_cuts"], record["settings"]["minutes"]
    rows = [
        [name, f"{found[key]['found']} of {found[key]['cuts']}", str(found[key]["false"]), str(false[key])]
        for key, name in (("fastgaze", "fastgaze"), ("scdet", "FFmpeg's scdet"))
    ]
    head = ["", "hard cuts found", "false ones in the same clip", f"false ones in {minutes:g} minutes of camera work"]
    text = (
        "Camera work is pans, whip pans, zooms and shakes without a cut, most with flashes or a stroboscope "
        "(`python -m experiments.video_cuts`)."
    )
    return f"{text}\n\n{table(head, rows)}"


def temporal(record: dict[str, Any]) -> str:
    """Scores of frames."""
    chosen, rows = record["chosen"], []
    for key, name in MAPS.items():
        if key in record["methods"]:
            own = record["methods"][key]["as it is"]
            rows.append([name, *(f"{own[metric]:.3f}" for metric in ("auc", "nss", "cc", "information_gain"))])
            rows[-1].append(f"{record['methods'][key]['fitted']['information_gain']:.3f}")
    text = (
        f"Scores of single moments on {len(record['reporting'])} sequences, by the fixations of that moment. Smoothing "
        f"({chosen['smooth']:g} s) and motion ({chosen['motion']:g}) were chosen on {len(record['choosing'])} others. "
        "The last column has a power of the density and a share of the centre bias fitted on those others, for every "
        "method (`python -m experiments.video_temporal`)."
    )
    return f"{text}\n\n{table(['maps', 'AUC', 'NSS', 'CC', 'information gain', 'fitted'], rows)}"


def roi(record: dict[str, Any]) -> str:
    """Cost and neutrality."""
    cost = record["at_60_seconds"]
    rows = [
        [row["clip"], f"{row['crf']:g}", f"{row['bits']:.3f}"]
        + [f"{row[key]['gain']:+.2f} dB" for key in ("psnr_model", "psnr_people")]
        for row in record["neutral"]
    ]
    head = ["clip", "crf", "size, to plain", "gain by the model's weights", "gain by where people looked"]
    text = (
        f"A clip of 60 s has {cost['stretches']} stretches with {cost['rectangles']} rectangles; encoding with them "
        f"takes {cost['median_ratio']:.2f} times the CPU time of a plain encode. With `--neutral --crf`, sizes and "
        "weighted PSNR compare like this (`python -m experiments.video_roi`)."
    )
    return f"{text}\n\n{table(head, rows)}"


PARTS = {"reframe": reframe, "roi": roi, "cuts": cuts, "temporal": temporal}


if __name__ == "__main__":
    for mark, write in PARTS.items():
        measured = read_record(RESULTS / f"video_{mark}.json")
        if measured is not None:
            fill(PAGE, mark, write(measured))
