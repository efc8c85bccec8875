"""The report says what was measured, in words that follow the numbers, and names what was not."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.common import DOCS, RESULTS
from experiments.report import document
from experiments.reporting import model_sections
from experiments.reporting.document import html, markdown
from experiments.reporting.drawings import front_of
from experiments.reporting.inputs import COMMANDS, Inputs, bundled_identity
from experiments.reporting.speeds import Range, speeds


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


def test_verdicts_of_figure_1_flip_with_the_numbers(tmp_path: Path) -> None:
    claims = {
        "Naive signals": ("naive", 0.3, 0.01),
        "A weight on the cost": ("beta", 0.01, 0.3),
        "Live costs": ("frozen", 0.3, 0.01),
    }
    for claim, (key, agreeing, contrary) in claims.items():
        for rise, expected in ((agreeing, "reproduced"), (contrary, "contradicted"), (0.1, "undecided")):
            text, _ = pages(put(tmp_path, figure1=curves(**{key: rise})))
            assert verdict(text, claim) == expected, (claim, rise)


def test_molchanov_is_alike_only_within_the_margin(tmp_path: Path) -> None:
    claim = "Without cost, Fisher prunes as Molchanov"
    for rise, expected in ((0.1, "reproduced"), (0.3, "contradicted"), (0.01, "contradicted"), (0.12, "undecided")):
        assert verdict(pages(put(tmp_path, figure1=curves(molchanov=rise)))[0], claim) == expected, rise


def test_sentences_of_figure_1_flip_with_the_numbers(tmp_path: Path) -> None:
    for rise, verb in ((0.3, "is worse than"), (0.01, "is better than"), (0.1, "cannot be told from")):
        text, _ = pages(put(tmp_path, figure1=curves(naive=rise)))
        assert f"At 25% of the cost, the better of L1A and L1W {verb} Fisher with β = 0 (" in text


def test_a_weight_that_is_best_everywhere_contradicts_that_degrees_need_their_own(tmp_path: Path) -> None:
    claim = "Networks pruned to different degrees need different β"
    for few, many, expected in ((0.3, 0.01, "reproduced"), (0.01, 0.01, "undecided")):
        record = curves()
        other = json.loads(json.dumps(record["curves"]["Fisher, beta at 50%"]))
        for point in other["measured"][1:]:
            point["losses"] = [7.0 + (few if point["mark"] > 30 else many)] * 60
        record["curves"]["Fisher, beta at 90%"] = other
        assert verdict(pages(put(tmp_path, figure1=record))[0], claim) == expected, (few, many)


def test_curves_of_lenet_decide_no_claim_of_the_paper(tmp_path: Path) -> None:
    record = curves(naive=0.01) | {"unit_flops": 1e6}
    text, _ = pages(put(tmp_path, figure1_dash_lenet=record))
    assert verdict(text, "Naive signals") == "undecided"
    assert "the better of L1A and L1W is better than Fisher with β = 0" in text


def test_the_caption_of_figure_1_says_what_its_record_says(tmp_path: Path) -> None:
    record = curves()
    record["settings"] |= {"signal_images": 7, "signal_precision": "fp32", "size": [96, 64]}
    text, _ = pages(put(tmp_path, figure1=record))
    assert "signals from 7 images of salicon/val at 96x64, loss on 60 others" in text
    assert "signals in fp32, losses in fp32" in text


def test_lenet_verdicts_flip_with_the_errors(tmp_path: Path) -> None:
    claim = "LeNet-5 keeps its error"
    for error, expected in ((0.61, "reproduced"), (0.8, "contradicted"), (0.65, "undecided")):
        text, _ = pages(put(tmp_path, lenet_mnist=lenet(fixed=error)))
        assert verdict(text, claim) == expected, error
        assert verdict(text, "On LeNet-5, β* is not as good") == ("contradicted" if error == 0.8 else "reproduced")
    assert "| Fisher (β*) | 0.86% | 17% | 0.65% ± 0.01 | 16.5% | 4-10-99-10 |" in text


def test_students_are_ahead_of_their_teacher_or_behind_it_as_the_numbers_say(tmp_path: Path) -> None:
    for auc, expected in ((0.87, "reproduced"), (0.85, "contradicted"), (0.8605, "undecided")):
        text, _ = pages(put(tmp_path, front=front(dense=auc)))
        assert verdict(text, "DenseGaze is ahead of DeepGaze II") == expected, auc
    behind, _ = pages(put(tmp_path, front=front(large=0.85)))
    assert verdict(behind, "FastGaze is slightly behind") == "reproduced"
    assert re.search(r"AUC: `densegaze-m`.* ahead of DeepGaze II, `fastgaze-l` is behind DeepGaze II", behind)
    ahead, _ = pages(put(tmp_path, front=front(large=0.87)))
    assert verdict(ahead, "FastGaze is slightly behind") == "contradicted"


def test_scores_of_single_images_make_intervals_paired(tmp_path: Path) -> None:
    put(tmp_path, front=front(dense=0.8605))
    (tmp_path / "rows").mkdir()
    values = np.random.default_rng(0).uniform(0.7, 0.9, 40)
    for name, shift in (("deepgaze2", 0.0), ("densegaze-m", 0.002)):
        own = {metric: (values + shift).tolist() for metric in ("auc", "nss", "sim", "log_likelihood_bits")}
        (tmp_path / "rows" / f"{name}.cat2000.json").write_text(json.dumps({"name": list(range(40)), **own}))
    text, _ = pages(tmp_path)
    assert verdict(text, "DenseGaze is ahead of DeepGaze II") == "reproduced"
    assert "AUC +0.0020 [+0.0020, +0.0020]" in text


def test_models_without_scores_of_single_images_are_named_as_not_paired(tmp_path: Path) -> None:
    put(tmp_path, front=front())
    (tmp_path / "rows").mkdir()
    own = {metric: [0.8] * 40 for metric in ("auc", "nss", "sim", "log_likelihood_bits")}
    for name in ("deepgaze2", "densegaze-m", "fastgaze-l"):
        (tmp_path / "rows" / f"{name}.cat2000.json").write_text(json.dumps({"name": list(range(40)), **own}))
    text, _ = pages(tmp_path)
    assert "for `fastgaze-xs` intervals of two independent means" in text
    assert "(not paired)" not in next(line for line in text.splitlines() if line.startswith("| DenseGaze is ahead"))


def test_dense_is_compared_with_fast(tmp_path: Path) -> None:
    for dense, ahead, sim in ((0.875, "reproduced", "contradicted"), (0.86, "contradicted", "reproduced")):
        text, _ = pages(put(tmp_path, front=front(dense=dense)))
        assert verdict(text, "DenseGaze predicts CAT2000 better than FastGaze") == ahead
        assert verdict(text, "In SIM, DenseGaze is not ahead of FastGaze") == sim


def test_a_bundled_model_is_an_extra_only_as_long_as_its_file_is_the_same(tmp_path: Path) -> None:
    record = front()
    record["models"]["default"] = model("bundled", "LiteGaze", 2, 7, 0.873, sha256=bundled_identity("default"))
    text, _ = pages(put(tmp_path, front=record))
    extra = text.split("The models that are bundled now minus DeepGaze II")[1].split("\n\n")[1]
    assert "| `default` |" in extra
    assert "`default`" not in text.split("Every point.")[1].split("```sh")[0], "no part of the paper"
    record["models"]["default"]["sha256"] = "another"
    assert "bundled now minus DeepGaze II" not in pages(put(tmp_path, front=record))[0]


def test_a_speed_up_needs_both_the_quality_and_the_factor(tmp_path: Path) -> None:
    claim = "More than 75 times as fast"
    assert verdict(pages(put(tmp_path, front=front()))[0], claim) == "reproduced"
    assert verdict(pages(put(tmp_path, front=front(heaviest=0.85)))[0], claim) == "contradicted"
    slow = front()
    slow["models"]["fastgaze-xs"]["times"]["own size"] |= {
        "ratio_same_engine": 50,
        "ratio_same_engine_spread": [49, 51],
    }
    text, _ = pages(put(tmp_path, front=slow))
    assert verdict(text, claim) == "contradicted"
    assert "50.0 [49.0, 51.0] times in the same engine, each at its scored size (200 times" in text


def test_like_is_compared_with_like_where_a_network_is_faster_than_the_papers(tmp_path: Path) -> None:
    record = front(heaviest=0.85)
    record["models"]["fastgaze-m"] = model("finished", "FastGaze", 2.8, 19, 0.866)
    text, _ = pages(put(tmp_path, front=record))
    assert "`fastgaze-m`: log-likelihood, bits +0.060" in text
    assert verdict(text, "More than 75 times as fast") == "reproduced"
    assert verdict(text, "Even heavily pruned networks are as good as DeepGaze II") == "reproduced"


def trial(number: int, beta: float, gflop: float, loss: float) -> dict[str, Any]:
    objective = "beta" if beta else "none"
    return {"number": number, "objective": objective, "beta": beta, "removed": 9, "loss": loss, "gflop": gflop}


SEARCH = {
    "start": "fastgaze-l", "beta": [1e-5, 3e-3], "removed": [0.35, 0.85], "unregularised": 0.4, "share": 0.08,
    "steps": 3, "batch": 8, "optimizer": "adam", "learning_rate": 5e-5, "tuning_steps": 200, "validation_images": 200,
    "size": "320x240", "precision": "bf16",
}  # fmt: skip


def test_costs_of_a_search_at_equal_loss_are_those_of_the_fronts(tmp_path: Path) -> None:
    trials = [trial(0, 0.1, 2, 7.4), trial(1, 0.1, 4, 7.35), trial(2, 0.1, 8, 7.45)]  # the last is on no front
    trials += [trial(3, 0.0, 4, 7.4), trial(4, 0.0, 8, 7.35), trial(5, 0.0, 9, 7.45)]
    put(tmp_path, sweep={"settings": SEARCH, "points": trials, "pareto": [0, 1, 5]})
    text, _ = pages(tmp_path, tmp_path / "images")
    assert "| 1 | 0.1 | 9 | 4.00 | 7.3500 | yes |" in text
    assert "At equal validation loss β = 0 needs 2.00 times the GFLOP of β > 0 on average" in text
    assert "at most 2.00 and at least 2.00 times; 3 trials with β > 0, 3 without" in text
    assert "β drawn log-uniformly from 1e-05 to 0.003 nats per GFLOP" in text
    assert "8% of them every 3 steps of 8 images (adam, rate 5e-05), then 200 steps of tuning" in text
    assert "![3 trials" not in text
    assert "![6 trials from fastgaze-l, 3 of them with β = 0: β drawn log-uniformly from 1e-05 to 0.003" in text
    assert (tmp_path / "images" / "sweep.png").is_file()


def search(factor: float, count: int) -> list[dict[str, Any]]:
    """``count`` trials with a weight, and half as many without, which cost ``factor`` times as much at every loss."""
    spread = np.linspace(1, 10, count)
    points = [trial(2 * i, 0.1, float(g), float(8 - 0.1 * np.log(g))) for i, g in enumerate(spread)]
    others = spread[:: 2 if count > 4 else 1]
    points += [trial(2 * i + 1, 0.0, float(g * factor), float(8 - 0.1 * np.log(g))) for i, g in enumerate(others)]
    return points


def test_a_search_decides_only_with_enough_trials(tmp_path: Path) -> None:
    claim = "At equal validation loss, pruning with β > 0 is cheaper"
    for factor, count, expected in ((2.0, 40, "reproduced"), (0.5, 40, "contradicted"), (2.0, 2, "undecided")):
        record = {"settings": SEARCH, "points": search(factor, count), "pareto": []}
        assert verdict(pages(put(tmp_path, sweep=record))[0], claim) == expected, (factor, count)


def test_more_trials_of_one_kind_are_no_evidence_for_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def drawn(number: int, beta: float) -> dict[str, Any]:
        gflop = float(rng.uniform(1, 10))
        return trial(number, beta, gflop, float(8 - 0.1 * np.log(gflop) + abs(rng.normal(0, 0.05))))

    points = [drawn(i, 0.1) for i in range(60)] + [drawn(100 + i, 0.0) for i in range(12)]
    text, _ = pages(put(tmp_path, sweep={"settings": SEARCH, "points": points, "pareto": []}))
    assert verdict(text, "At equal validation loss, pruning with β > 0 is cheaper") == "undecided"


def test_a_search_that_is_not_finished_says_so(tmp_path: Path) -> None:
    record = {"settings": SEARCH | {"trials": 32}, "points": search(2.0, 6), "pareto": []}
    text, _ = pages(put(tmp_path, sweep=record))
    assert "**Not measured yet**: 23 of 32 trials. Run" in text


def variants(bits: dict[str, float], gflop: dict[str, float], seeds: int = 3) -> dict[str, Any]:
    noise = np.random.default_rng(0).normal(0, 0.2, 50)
    runs = {
        name: [
            {"gflop": gflop.get(name, 3.0), "rows": {"salicon-val": {"log_likelihood_bits": (value + noise).tolist()}}}
            for _ in range(seeds)
        ]
        for name, value in bits.items()
    }
    settings = {"start": "x", "gflop": 3.0, "tuning_steps": 9, "seeds": [0, 1, 2], "size": "320x240"}
    return {"command": "x", "settings": settings, "variants": runs, "pairs": ["beta* - none"]}


EQUAL = "At equal cost and after tuning, pruning with β* leaves a better network"


def test_networks_are_compared_only_at_equal_cost(tmp_path: Path) -> None:
    for none, cost, expected in ((1.4, 3.0, "reproduced"), (1.6, 3.0, "contradicted"), (1.4, 3.3, "undecided")):
        record = variants({"beta*": 1.5, "none": none}, {"none": cost})
        text, _ = pages(put(tmp_path, equal_cost=record))
        assert verdict(text, EQUAL) == expected, (none, cost)
    assert "at unequal cost" in text


def test_a_map_more_or_less_widens_the_interval(tmp_path: Path) -> None:
    for none, cost, expected in ((1.499, 3.0, "reproduced"), (1.499, 3.05, "undecided")):
        record = variants({"beta*": 1.5, "none": none}, {"none": cost})
        assert verdict(pages(put(tmp_path, equal_cost=record))[0], EQUAL) == expected, cost


def test_some_of_the_seeds_decide_nothing_and_are_not_called_all(tmp_path: Path) -> None:
    record = variants({"beta*": 1.5, "none": 1.4}, {}, seeds=2)
    record["settings"]["variants"] = {"beta*": {}, "none": {}, "frozen": {}}
    text, _ = pages(put(tmp_path, equal_cost=record))
    assert verdict(text, EQUAL) == "undecided"
    assert "`β*` (2 of 3 seeds), `none` (2 of 3 seeds), `frozen` (0 of 3 seeds)" in text
    assert "up to 2 of 3 seeds so far" in text
    assert "; 3 seeds;" not in text


def test_images_that_stopped_training_do_not_decide(tmp_path: Path) -> None:
    record = variants({"beta*": 1.5, "none": 1.4}, {})
    for name, early, late in (("beta*", 9.0, 1.0), ("none", 1.0, 1.1)):
        for run in record["variants"][name]:
            run["rows"]["salicon-val"]["log_likelihood_bits"] = [early] * 200 + [late] * 50
    text, _ = pages(put(tmp_path, equal_cost=record))
    assert verdict(text, EQUAL) == "contradicted"
    assert "images: SALICON val 50" in text


def test_early_stopping_is_too_early_if_pruning_on_lowers_the_combined_cost(tmp_path: Path) -> None:
    # From 8 to 3 GFLOP, beta = 0.01 saves 0.05 nats, 0.072 bits.
    for sgd, cost, expected in ((1.45, 8.0, "reproduced"), (1.40, 8.0, "contradicted"), (1.5, 3.0, "contradicted")):
        record = variants({"sgd": sgd, "early": 1.5}, {"early": cost}) | {"pairs": ["sgd - early"]}
        record["settings"]["variants"] = {"sgd": {}, "early": {"beta": [0.01]}}
        text, _ = pages(put(tmp_path, choices=record))
        assert verdict(text, "Early stopping on the combined cost") == expected, (sgd, cost)
    assert "not before 3 GFLOP" in text


def test_seeds_that_differ_as_much_as_the_variants_decide_nothing(tmp_path: Path) -> None:
    record = variants({"beta*": 1.5, "none": 1.4}, {})
    for run, shift in zip(record["variants"]["none"], (-0.1, 0.0, 0.1), strict=True):
        scores = run["rows"]["salicon-val"]["log_likelihood_bits"]
        scores[:] = [score + shift for score in scores]
    text, _ = pages(put(tmp_path, equal_cost=record))
    assert verdict(text, EQUAL) == "undecided"


def test_an_earlier_comparison_names_its_costs(tmp_path: Path) -> None:
    text, _ = pages(put(tmp_path, front=front()))
    assert "the costs of FastGaze are 12% apart (8.00 to 9.00 GFLOP), and one seed has no interval" in text


def test_widths_that_were_typed_in_are_never_in_figure_3(tmp_path: Path) -> None:
    text, _ = pages(put(tmp_path, front=front()))
    section = text.split("## Figure 3")[1].split("## Figure 4")[0]
    shown = re.findall(r"^\| `([\w.-]+)` \|", section, flags=re.M)
    assert shown == ["fastgaze-l", "none-8", "star-8", "sweep-3-beta", "sweep-4-none"], "the start, then found ones"
    assert "densegaze-m`" not in section


def searched(widths: dict[float, tuple[int, int, int, int]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A front and a search with three trials of each beta, whose layers have the given widths, of 64 at the start."""
    record = front()
    names = ("conv1_1", "conv2_1", "conv3_1", "conv4_1")
    record["models"] = {"fastgaze-l": model("finished", "FastGaze", 10, 100, 0.86)}
    record["models"]["fastgaze-l"]["layers"] = [[name, 64] for name in names]
    points = []
    for beta, shape in widths.items():
        for _ in range(3):
            points.append(trial(len(points), beta, 3.0, 7.4))
            kind, mark = ("regularised", "beta") if beta else ("unregularised", "none")
            found = model(kind, "FastGaze", 3, 40, 0.86, source="search", found=True)
            found["layers"] = [list(pair) for pair in zip(names, shape, strict=True)]
            record["models"][f"sweep-{points[-1]['number']}-{mark}"] = found
    return record, {"settings": SEARCH, "points": points, "pareto": []}


def test_widths_alternate_only_if_they_go_up_and_down(tmp_path: Path) -> None:
    claim = "Strongly regularised networks alternate"
    flat, trend, zigzag = (32, 32, 32, 32), (64, 32, 16, 8), (32, 4, 32, 4)
    for strong, zero, expected in (
        (zigzag, flat, "reproduced"),
        (flat, zigzag, "contradicted"),
        (trend, flat, "undecided"),
    ):
        record, sweep = searched({0.0: zero, 1e-4: zero, 1e-3: strong})
        text, _ = pages(put(tmp_path, front=record, sweep=sweep))
        assert verdict(text, claim) == expected, (strong, zero)


def test_a_search_that_is_not_scored_to_its_end_decides_nothing(tmp_path: Path) -> None:
    record, sweep = searched({0.0: (32, 32, 32, 32), 1e-4: (32, 32, 32, 32), 1e-3: (32, 4, 32, 4)})
    for number, facts in enumerate(list(record["models"].values())[1:]):
        facts["gflop_640x480"], kind = 1.0 + number % 3, facts["kind"]
        facts["scores"]["cat2000"] = score(0.8 + 0.01 * (number % 3) + (0.005 if kind == "regularised" else 0.0))
    whole, _ = pages(put(tmp_path, front=record, sweep=sweep))
    assert verdict(whole, "Strongly regularised networks alternate") == "reproduced"
    del record["models"]["sweep-4-beta"]
    text, _ = pages(put(tmp_path, front=record, sweep=sweep))
    assert "8 of 9 trials are scored" in text
    for claim in ("At equal AUC on CAT2000", "Strongly regularised networks alternate"):
        assert verdict(text, claim) == "undecided"


def test_figure_3_shows_a_trial_of_each_of_four_betas(tmp_path: Path) -> None:
    shape = (32, 32, 32, 32)
    record, sweep = searched({0.0: shape, 1e-5: shape, 1e-4: shape, 1e-3: shape})
    text, _ = pages(put(tmp_path, front=record, sweep=sweep))
    section = text.split("## Figure 3")[1].split("## Figure 4")[0]
    assert re.findall(r"^\| `(sweep-\d+)", section, flags=re.M) == ["sweep-0", "sweep-3", "sweep-6", "sweep-9"]


def test_the_best_fastgaze_is_a_regularised_one(tmp_path: Path) -> None:
    text, _ = pages(put(tmp_path, front=front()), tmp_path / "images")
    assert "| AUC | 0.860 | 0.868 (`fastgaze-l`) | 0.870 (`densegaze-m`) | `fastgaze-xs` | 150 | 200 |" in text
    with Image.open(tmp_path / "images" / "figure2.png") as figure:
        assert figure.width == 1600


def test_the_legacy_table_says_where_the_centre_bias_wins(tmp_path: Path) -> None:
    record = front()
    for name in ("fastgaze-l", "densegaze-m"):
        record["models"][name]["scores"]["cat2000-legacy"] = score(0.86)
    for kl, words in ((0.2, "in KL (0.200) it is ahead of 2 of 2 models"), (0.9, "behind every model in every metric")):
        record["baselines"] = {"cat2000-legacy": {"center_bias": {"auc": 0.8, "kl": kl, "sim": 0.7, "nss": 1.0}}}
        text, _ = pages(put(tmp_path, front=record))
        assert words in text
    assert "Not measured yet**: deepgaze2 and twitter-fastgaze by this protocol" in text


def test_240_gflop_are_the_readout_at_stride_4() -> None:
    assert model_sections.deepgaze2_gflop() == pytest.approx(239.07, abs=0.005)
    assert model_sections.deepgaze2_gflop(4) == pytest.approx(240.57, abs=0.005)
    assert model_sections.cost_claim().verdict == "reproduced"


def test_speeds_are_medians_and_ranges_over_all_runs() -> None:
    def run(load: float, ms: float) -> dict[str, Any]:
        row = {"name": "m", "engine": "onnxruntime", "precision": "fp32", "own_size": True, "network_size": [160, 208]}
        machine = MACHINE | {"load": load}
        return {"machine": machine, "settings": {"rounds": 4}, "rows": [row | {"cpu_ms": ms, "ratio_to_peer": 1 / ms}]}

    (found,) = speeds({"runs": [run(1.79, 8.0), run(0.35, 10.0), run(0.1, 9.0)]}).values()
    assert found.cpu_ms == Range(9.0, 8.0, 10.0, 3)
    assert found.cpu_ms.shown() == "9.0 (8.0 to 10.0)"


# The page


def test_what_was_not_measured_is_named_with_its_command(tmp_path: Path) -> None:
    text, page = pages(tmp_path)
    for name in (
        "lenet_mnist",
        "figure1",
        "figure1-lenet",
        "front",
        "maps",
        "search",
        "equal_cost",
        "choices",
        "speed",
    ):
        assert f"Run `{COMMANDS[name]}`" in text, name
    assert "![" not in text
    assert "<img" not in page
    assert page.count('class="missing"') == text.count("**Not measured yet**")
    assert "0 contradicted" in text


def test_the_papers_numbers_are_there_without_any_of_ours(tmp_path: Path) -> None:
    text, _ = pages(tmp_path)
    for row in (
        "| Fisher (β > 0) | 0.79% | 10% |",
        "| Han et al. (2015), single parameters | 0.77% | 16% |",
        "| DeepGaze II | 88% | 0.96 | 0.46 | 1.29 | 240.6 |",
        "| FastGaze | 85% | 1.21 | 0.61 | 2.00 | 10.7 |",
        "| DenseGaze | 86% | 1.20 | 0.63 | 2.16 | 12.8 |",
    ):
        assert row in text, row
    for words in ("1.39 s, 356 ms, 258 ms and 91 ms", "(577 ms)", "3.59 s", "39 times as fast", "Xeon E5-2620"):
        assert words in text, words


def test_only_points_that_no_faster_one_reaches_are_pareto_optimal() -> None:
    assert front_of([(30, 0.5), (10, 0.3), (20, 0.2), (40, 0.5), (50, 0.9)]) == [(10, 0.3), (30, 0.5), (50, 0.9)]


class _Words(HTMLParser):
    """Text and tags of a page; every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.cells += tag in ("td", "th")
        if tag not in ("meta", "img", "wbr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_the_same_cells_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text, page = pages(put(tmp_path, front=front(), figure1=curves(), lenet_mnist=lenet()))
    words = _Words()
    words.feed(page)
    assert not words.open
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert words.cells == sum(line.count(" | ") + 1 for line in rows)
    assert "<script" not in page
    assert not re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', page)
    assert "prefers-color-scheme: dark" in page


def test_the_committed_pages_are_the_generated_ones() -> None:
    text, page = pages(RESULTS)
    assert (DOCS / "results.md").read_text() == text, "run: python -m experiments.report"
    assert (DOCS / "results.html").read_text() == page, "run: python -m experiments.report"
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (DOCS / picture).is_file(), picture
