"""Figure 4: example saliency maps, and the speed of the models that made them."""

from pathlib import Path

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Section, Table, Text
from experiments.reporting.gaze_sections import RATIO_HEADER, ms_words, ratios, timing_words
from experiments.reporting.inputs import Inputs, command, missing
from experiments.reporting.verdicts import joined


def figure4(inputs: Inputs, images: Path | None) -> Section:
    """Example saliency maps."""
    blocks: list[Block] = [Heading("Figure 4: example saliency maps")]
    blocks.append(Text(f"In the paper: {paper.FIGURE4}."))
    record = inputs.read("maps")
    names = [] if record is None else [name for name in record["figures"]["maps"] if name in record["models"]]
    if record is None or not names:
        return [*blocks, missing("maps", "maps of our models")], []
    if images is not None:
        photos = [images / "maps" / f"photo-{picture}.jpg" for picture in record["figures"]["pictures"]]
        rows = [(_short(inputs, record, name), _files(record, name, images)) for name in names]
        drawings.figure4(photos, rows, images / "figure4.jpg")
    blocks += [Picture("images/results/figure4.jpg", _maps_caption(record)), _row_by_row(inputs, record, names)]
    absent = [name for name in record["figures"]["maps"] if name not in names]
    if absent:
        blocks.append(missing("maps", f"maps of {joined(absent)}, whose files were not there"))
    return [*blocks, Command(command("maps", record))], []


def _maps_caption(record: Record) -> str:
    rule = record["rule"]
    low, high = rule["percentiles"]
    return (
        f"Fixation probabilities with gamma {rule['gamma']}, black and white at the {low:g}% and {high:g}% percentiles "
        "of each map, as in the paper (which does not give its gamma). All with the centre bias of "
        f"`{rule['center_bias']}`, at each model's working size. DeepGaze II: the map of the ensemble, the time of one "
        "member. The paper's pictures are of CAT2000, which may not be redistributed; these photographs may, and "
        "nobody's fixations on them were recorded."
    )


def _files(record: Record, name: str, images: Path) -> list[Path]:
    files = record["models"][name]["files"]
    return [images / "maps" / files[picture] for picture in record["figures"]["pictures"]]


def _short(inputs: Inputs, record: Record, name: str) -> str:
    time = inputs.milliseconds(name, "torch" if record["models"][name]["kind"] == "teacher" else "onnxruntime")
    return name if time is None else f"{name}\n({ms_words(time)} ms)"


def _row_by_row(inputs: Inputs, record: Record, names: list[str]) -> Table:
    """Times beside the paper's, row by row of its figure."""
    rows = []
    models = inputs.models()
    for (title, printed), name in zip(paper.FIGURE4_MS.items(), record["figures"]["maps"], strict=False):
        engine = "torch" if name in names and record["models"][name]["kind"] == "teacher" else "onnxruntime"
        both = ratios(models[name]) if name in models else ("-", "-")
        time = ms_words(inputs.milliseconds(name, engine))
        rows.append((title, f"{printed}", f"{paper.DEEPGAZE2_MS / printed:.1f}", f"`{name}`", time, *both))
    header = ("row in the paper", "ms, paper", "speed-up, paper", "row of ours", "ms, ours", *RATIO_HEADER)
    about = "Speed, row by row. "
    about += f"Ours: {timing_words(inputs)}; onnxruntime, DeepGaze II in torch." if inputs.timed else "Not timed yet."
    return Table(header, tuple(rows), about)
