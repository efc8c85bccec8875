"""Write the generated parts of README.md and docs/models.md: figures, tables of models, cards, the strip of pictures.

    python -m experiments.readme

Scores come from the cards of the bundled files, times from results/speed.json, audits from results/crop_audit-*.json.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

import fastgaze
from experiments import common
from experiments.common import DOCS, EXAMPLES, RESULTS, ROOT
from experiments.pages import filled, table
from experiments.reporting.speeds import Range, Speed, bundled_speeds
from fastgaze.runtime.zoo import BundledModel, models

STRIP = ("astronaut", "coffee", "chelsea")
HEIGHT = 220
CARD_METRICS = ("auc", "nss", "sim", "kl", "log_likelihood_bits", "information_gain")
SCORED = {
    "salicon-val": "SALICON",
    "osie-held-out": "OSIE",
    "eyecrowd-held-out": "EyeCrowd",
    "ueyes-held-out": "UEyes (screens)",
    "cat2000": "CAT2000",
}


def recorded_speeds() -> dict[str, Speed]:
    """Of the bundled files, by name, over all runs of `experiments.speed`."""
    return bundled_speeds(json.loads((RESULTS / "speed.json").read_text()))


def figures(listed: Sequence[BundledModel], times: Mapping[str, Range]) -> str:
    """How good and how fast the default model is, in words for somebody who has not heard of AUC."""
    own = listed[0]
    osie = own.scores["osie-held-out"]
    auc = {"model": osie["means"]["auc"], **{kind: means["auc"] for kind, means in osie["baselines"].items()}}
    shares = {kind: round(100 * value) for kind, value in auc.items()}
    good = (
        "It tells a spot that somebody looked at from a random spot in the same photograph "
        f"{shares['model']} times out of 100; the gaze of the other people who saw the photograph does so "
        f"{shares['other_observers']} times, and betting on the centre {shares['center_bias']} times "
        f"(OSIE, {osie['images']} photographs kept out of training)."
    )
    if own.name not in times:
        return good
    time, medians = times[own.name], [one.median for one in times.values()]
    runs = f"median and range of {time.runs} recorded runs" if time.runs > 1 else "one recorded run"
    fast = (
        f"A prediction takes {time.shown(unit=' ms')} on one core of a shared cloud machine (model `{own.name}`, from "
        f"a decoded 512x384 picture to its map, {runs}); [the other models](docs/models.md) take "
        f"{min(medians):.1f} to {max(medians):.1f} ms."
    )
    return f"{good} {fast}"


def shown_name(model: BundledModel) -> str:
    """As the tables have it."""
    return f"**`{model.name}`** (default)" if model.default else f"`{model.name}`"


def costs(listed: Sequence[BundledModel], timed: Mapping[str, Speed]) -> str:
    """Sizes come from the cards, times and ratios from the recorded runs of `experiments.speed`."""
    header = ["model", "parameters", "GFLOP at 640x480", "working size of 4:3", "file", "one core"]
    header += ["DeepGaze II takes, same engine", "DeepGaze II takes, eager torch"]
    rows = []
    for model in listed:
        height, width = model.working_size
        cells = [shown_name(model), f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{width}x{height}"]
        speed = timed.get(model.name)
        ratios = (None, None) if speed is None else (speed.same_engine, speed.to_eager)
        cells += [f"{model.bytes / 1e6:.2f} MB", "-" if speed is None else speed.cpu_ms.shown(unit=" ms")]
        rows.append(cells + ["-" if ratio is None else f"{ratio.shown(0)} times as long" for ratio in ratios])
    about = (
        "Times are CPU milliseconds from a decoded 512x384 picture to its log density at that size, with the network "
        "at the model's own working size, in onnxruntime on one thread: the median of the recorded runs and their "
        "range (`python -m experiments.speed` records a run; `fastgaze bench NAME` measures on your machine). The time "
        "of DeepGaze II is given in two forms: in the same engine, each model at the size at which it is scored, and "
        "in eager torch with a network input of 512x384, as the paper measured it. Ratios are formed within a run. "
        "[results.md](results.md) has other engines."
    )
    return f"{table(header, rows)}\n\n{about}"


def scores(listed: Sequence[BundledModel]) -> str:
    """The models on photographs, crowds, screens and CAT2000; screens by category; calibration."""
    header = [
        "model",
        "SALICON: AUC / NSS / bits",
        "600 of them",
        "OSIE",
        "EyeCrowd",
        "screens: AUC / NSS / gain",
        "CAT2000",
    ]
    rows = []
    for model in listed:
        found = model.scores
        cells = [_triple(found["salicon-val"]), _triple(found["salicon-val"]["did_not_stop_training"])]
        cells += [_triple(found["osie-held-out"]), _triple(found["eyecrowd-held-out"])]
        cells += [_triple(found["ueyes-held-out"], "information_gain"), _triple(found["cat2000"])]
        rows.append([shown_name(model), *cells])
    images = {name: listed[0].scores[name]["images"] for name in SCORED}
    about = (
        f"Means over images: {images['salicon-val']} of SALICON's validation set, {images['osie-held-out']} of OSIE, "
        f"{images['eyecrowd-held-out']} of EyeCrowd and {images['ueyes-held-out']} of UEyes that were kept out of "
        f"training, and {images['cat2000']} of CAT2000, which no model was trained on or chosen by. The `tuebingen` "
        "protocol with each set's own centre bias ([metrics.md](metrics.md)); bits are bits per fixation over a "
        "uniform density, gain is over the centre bias. 200 of SALICON's 800 validation images also decided when "
        "training stopped; the column after gives the scores of the others alone."
    )
    return f"{table(header, rows)}\n\n{about}"


def _triple(facts: Mapping[str, Any], last: str = "log_likelihood_bits") -> str:
    means = facts["means"]
    return f"{means['auc']:.3f} / {means['nss']:.2f} / {means[last]:.2f}"


def screens(listed: Sequence[BundledModel]) -> str:
    """UEyes by category."""
    kinds = listed[0].scores["ueyes-held-out"]["categories"]
    header = ["model", *(f"{kind} ({facts['images']})" for kind, facts in kinds.items())]
    rows = []
    for model in listed:
        found = model.scores["ueyes-held-out"]["categories"]
        rows.append([shown_name(model), *(_triple(found[kind], "information_gain") for kind in kinds)])
    about = "AUC / NSS / information gain on the kept-out images of UEyes, with their number in each category."
    return f"{table(header, rows)}\n\n{about}"


def temperatures(listed: Sequence[BundledModel]) -> str:
    """What would fit each set best."""
    rows = [[shown_name(model), *(f"{model.scores[name]['temperature']:.2f}" for name in SCORED)] for model in listed]
    return table(["model", *SCORED.values()], rows)


def card(model: BundledModel) -> str:
    """Scores of one model on every public set, with 95% intervals over images."""
    sets = {name: facts for name, facts in model.scores.items() if "means" in facts}
    metrics = [metric for metric in CARD_METRICS if metric in next(iter(sets.values()))["means"]]
    rows = [
        [name, facts["images"], *(_with_interval(facts["means"][m], facts["intervals"][m], 3) for m in metrics)]
        for name, facts in sets.items()
    ]
    about = f"### {model.name}\n{model.parameters:,} parameters, {model.gflop_640x480:.2f} GFLOP at 640x480."
    return f"{about}\n\n{table(['set', 'images', *metrics], rows)}{crop_check(model.name)}"


def crop_check(name: str) -> str:
    """What the crop audit found for a model: shares of the first of two people, with 95% intervals."""
    path = RESULTS / f"crop_audit-{name}.json"
    if not path.is_file():
        return ""
    rows = [
        [one["contrast"], one["pairs"], *(_with_interval(one[k], one[f"{k}_interval"], 2) for k in ("window", "mass"))]
        for one in json.loads(path.read_text())["findings"]
    ]
    return f"\n\n{table(['two people in one picture', 'pairs', 'window', 'attention'], rows)}"


def preferences(listed: Sequence[BundledModel]) -> str:
    """Which contrasts of the audit a window decides: those whose interval leaves out one half."""
    told = []
    for model in listed:
        path = RESULTS / f"crop_audit-{model.name}.json"
        findings = json.loads(path.read_text())["findings"] if path.is_file() else []
        found = [
            f"{one['contrast']} {_with_interval(one['window'], one['window_interval'], 2)}"
            for one in findings
            if not one["window_interval"][0] <= 0.5 <= one["window_interval"][1]
        ]
        if findings:
            told.append(f"  - `{model.name}`: {'; '.join(found) if found else 'none'}.")
    about = (
        "- **A crop may prefer one person to another.** Of two people who differ in one thing only, the window should "
        "take each in half of the pairs. It does not in these contrasts, by the 95% intervals of the tables above; a "
        "share above one half prefers what is named first, and one below it what is named second:"
    )
    return "\n".join([about, *told])


def _with_interval(value: float, interval: Sequence[float], digits: int) -> str:
    return f"{value:.{digits}f} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def strip() -> Image.Image:
    """Photographs, each with its heat map beside it."""
    parts: list[Image.Image] = []
    for name in STRIP:
        path = EXAMPLES / f"{name}.jpg"
        with Image.open(path) as photo:
            parts += [photo.convert("RGB"), fastgaze.predict(path).overlay()]
    parts = [part.resize((round(part.width * HEIGHT / part.height), HEIGHT)) for part in parts]
    canvas = Image.new("RGB", (sum(part.width for part in parts) + 6 * (len(parts) - 1), HEIGHT), "white")
    left = 0
    for part in parts:
        canvas.paste(part, (left, 0))
        left += part.width + 6
    return canvas


def with_figures(text: str) -> str:
    """README.md with the present figures."""
    times = {name: speed.cpu_ms for name, speed in recorded_speeds().items()}
    return filled(text, "figures", figures(models(), times))


def with_models(text: str) -> str:
    """docs/models.md with the present tables and cards."""
    listed = models()
    parts = {
        "models": costs(listed, recorded_speeds()),
        "scores": scores(listed),
        "screens": screens(listed),
        "temperatures": temperatures(listed),
        "preferences": preferences(listed),
        "cards": "\n\n".join(card(model) for model in listed),
    }
    for mark, content in parts.items():
        text = filled(text, mark, content)
    return text


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    return common.make_parser(__doc__, __file__, data=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill both pages and draw the strip."""
    common.parse(make_parser(), arguments)
    for page, fill in ((ROOT / "README.md", with_figures), (DOCS / "models.md", with_models)):
        page.write_text(fill(page.read_text()))
    strip().save(DOCS / "images" / "strip.png", optimize=True)


if __name__ == "__main__":
    main()
