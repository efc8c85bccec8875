"""Records as the experiments write them, and the report of them, for tests of what it says."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report import document
from experiments.reporting.document import html, markdown
from experiments.reporting.inputs import COMMANDS, Inputs


def pages(results: Path, images: Path | None = None) -> tuple[str, str]:
    """From the result files of a folder to (Markdown, HTML), with figures if a folder for them is given."""
    blocks = document(Inputs(results), images)
    return markdown(blocks), html(blocks)


def verdict(text: str, claim: str) -> str:
    """The verdict in the row of the opening table that begins with ``claim``."""
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {claim}")]
    return row.split(" | ")[3]


def put(folder: Path, **records: Any) -> Path:
    for name, record in records.items():
        (folder / f"{name.replace('_dash_', '-')}.json").write_text(json.dumps(record))
    return folder


# What results look like


def score(auc: float, images: int = 40, half: float = 0.001) -> dict[str, Any]:
    means = {"auc": auc, "nss": 10 * auc, "sim": auc, "kl": 0.3, "log_likelihood_bits": 10 * auc - 7}
    intervals = {name: [value - half, value + half] for name, value in means.items()}
    return {"asked": images, "images": images, "engine": "onnxruntime, fp32", "means": means, "intervals": intervals}


def model(kind: str, family: str, gflop: float, ms: float, auc: float, **more: Any) -> dict[str, Any]:
    ratio = {"ratio_to_deepgaze2": 2000 / ms, "ratio_same_engine": 1500 / ms}
    spread = {f"{name}_spread": [0.99 * value, 1.01 * value] for name, value in ratio.items()}
    times = {
        engine: {"cpu_ms": ms, "wall_ms": ms, **ratio, **spread} for engine in ("torch", "onnxruntime", "own size")
    }
    facts = {"family": family, "kind": kind, "gflop_640x480": gflop, "parameters": 1000, "maps": 9, "pixels": 76800}
    layers = [["conv1_1", 8], ["conv2_1", 16], ["readout1", 4]]
    scores = {"cat2000": score(auc), "salicon-val": score(auc)}
    return facts | {"times": times, "layers": layers, "scores": scores, "source": "", "found": False} | more


MACHINE = {"processor": "Test CPU", "cores": 2, "load": 0.5, "torch": "2", "onnxruntime": "1", "numpy": "2"}


def front(**aucs: float) -> dict[str, Any]:
    models = {
        "deepgaze2": model("teacher", "DeepGaze II", 239.07, 1800, 0.860),
        "densegaze-m": model("finished", "DenseGaze", 12.7, 150, aucs.get("dense", 0.870)),
        "fastgaze-l": model("finished", "FastGaze", 10, 100, aucs.get("large", 0.868)),
        "fastgaze-xs": model("finished", "FastGaze", 1, 10, aucs.get("heaviest", 0.861)),
        "sweep-3-beta": model("regularised", "FastGaze", 4, 40, 0.850, source="search", found=True),
        "sweep-4-none": model("unregularised", "FastGaze", 4, 40, 0.880, source="search", found=True),
        "star-8": model("regularised", "FastGaze", 8.0, 80, 0.86, source="comparison", found=True),
        "none-8": model("unregularised", "FastGaze", 9.0, 90, 0.85, source="comparison", found=True),
    }
    timing = {"size": [384, 512], "rounds": 3, "threads": 1, "precision": "fp32", "machine": MACHINE}
    return {"models": models, "baselines": {}, "timing": timing}


def curves(**rises: float) -> dict[str, Any]:
    """Figure 1 with the given mean rise of each method at every mark but the first."""
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    names = {
        "Fisher, beta*": ("star", "Fisher", None),
        "Fisher, beta = 0": ("zero", "Fisher", None),
        "Fisher, beta at 50%": ("beta", "Fisher", 0.01),
        "Fisher, beta*, frozen costs": ("frozen", "frozen costs", None),
        "Molchanov, normalised": ("molchanov", "Molchanov", None),
        "L1A": ("naive", "naive", None),
        "L1W": ("naive", "naive", None),
    }
    made = {}
    for name, (key, group, beta) in names.items():
        points = [{"mark": 100.0, "cost_percent": 100.0, "losses": [7.0] * 60}]
        for mark in (75, 50, 25, 10):
            losses = (7.0 + rises.get(key, 0.1) + noise * (1 + len(name) / 50)).tolist()
            points.append({"mark": mark, "cost_percent": mark, "losses": losses})
        made[name] = {"group": group, "live": "frozen" not in name, "beta": beta, "rounds": [], "measured": points}
    settings = {"model": "fastgaze-l", "data": "salicon/val", "signal_images": 64, "loss_images": 60, "maps": 10}
    settings |= {"size": [320, 240], "signal_precision": "bf16", "loss_precision": "fp32"}
    return {"command": COMMANDS["figure1"], "settings": settings, "unit_flops": 1e9, "curves": made}


def lenet(**errors: float) -> dict[str, Any]:
    def row(method: str, cost: float, error: float) -> dict[str, Any]:
        facts = {"method": method, "cost_percent": cost, "error_percent": error, "error_spread": 0.01}
        return facts | {"seeds": [1, 2, 3], "widths": [[4, 10, 99, 10]] * 3}

    rows = [row("unpruned", 100, 0.6), row("Fisher (beta = 0)", 25, 0.75)]
    rows += [row("Fisher (beta*)", 16.5, errors.get("star", 0.65)), row("Fisher (beta*)", 9, 0.7)]
    rows += [row("Fisher (beta > 0)", 10, errors.get("fixed", 0.61))]
    return {"plan": {"epochs": 8, "batch": 128, "maps": 3, "steps": 10}, "rows": rows}


# Words follow numbers


def trial(number: int, beta: float, gflop: float, loss: float) -> dict[str, Any]:
    objective = "beta" if beta else "none"
    return {"number": number, "objective": objective, "beta": beta, "removed": 9, "loss": loss, "gflop": gflop}


SEARCH = {
    "start": "fastgaze-l", "beta": [1e-5, 3e-3], "removed": [0.35, 0.85], "unregularised": 0.4, "share": 0.08,
    "steps": 3, "batch": 8, "optimizer": "adam", "learning_rate": 5e-5, "tuning_steps": 200, "validation_images": 200,
    "size": "320x240", "precision": "bf16",
}  # fmt: skip
