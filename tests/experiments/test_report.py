"""The report says what was measured, in words that follow the numbers, and names what was not."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reporting.inputs import bundled_identity
from tests.experiments.report_records import SEARCH, curves, front, lenet, model, pages, put, trial, verdict


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


def test_the_papers_pace_is_said_to_be_ahead_only_where_it_is(tmp_path: Path) -> None:
    record = front()
    for mark in (40, 10):
        for name, kind in (("pace", "paced"), ("fast", "fast")):
            facts = model(kind, "FastGaze", mark, 40, 0.86, source="pace", found=True)
            record["models"][f"{name}-{mark}"] = facts
    put(tmp_path, front=record)
    (tmp_path / "rows").mkdir()
    values = np.random.default_rng(0).uniform(0.7, 0.9, 40)
    for name, shift in (("pace-40", 0.01), ("fast-40", 0.0), ("pace-10", -0.01), ("fast-10", 0.0)):
        own = {metric: (values + shift).tolist() for metric in ("auc", "nss", "sim", "log_likelihood_bits")}
        (tmp_path / "rows" / f"{name}.cat2000.json").write_text(json.dumps({"name": list(range(40)), **own}))
    text, _ = pages(tmp_path)
    assert "the paper's pace is ahead of the fast schedule at 40 GFLOP; the paper's pace is behind" in text
    assert "cannot be told apart" not in text
    assert "pace-40" not in text.split("Every point")[1].split("##")[0], "smaller images are not a point of Figure 2"


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
