"""Networks that nobody here wrote. Twelve narrow ones always, all 135 with the slow tests."""

import importlib.util
from pathlib import Path

import pytest

from experiments import pruning_zoo, zoo_networks

SAMPLE = [
    "pytorchcv/resnet18_wd4", "pytorchcv/seresnet10", "pytorchcv/shufflenetv2_wd2", "pytorchcv/mobilenetv2_wd4",
    "pytorchcv/squeezenet_v1_1", "pytorchcv/dla46xc", "timm/resnet10t", "timm/mobilenetv3_small_050",
    "timm/ghostnet_050", "timm/convnext_atto", "timm/regnety_002", "timm/vit_tiny_patch16_224",
]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.filterwarnings("ignore")
def test_a_network_of_the_sample_is_pruned(name: str) -> None:
    library = name.split("/")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; `make test` installs it")
    result = pruning_zoo.ours(name)
    assert result["share"] <= pruning_zoo.GOAL
    assert result["error"] < 1e-5


def test_the_page_counts_what_passed_and_gives_a_reason_for_the_rest() -> None:
    passed = {"ok": True, "share": 0.7, "maps": 9, "prunable": 8, "error": 1e-7, "kept": ["1 maps: view (a.py:3)"]}
    late = {"ok": False, "reason": "not finished in 120 s of CPU time"}
    found = {"timm/resnet18": {"ours": passed, "theirs": late}, "timm/vgg11": {"ours": late}}
    page = pruning_zoo.page(found)
    assert "| none of the 66 listed has been run | none of the 66 listed has been run |" in page
    assert "| 1 of 2 passed; 67 of the 69 listed have not been run | 0 of 1 passed; 68 of the 69 listed" in page
    assert "| resnet18 | 9 | 8 | 70 % | 1e-07 | no: not finished in 120 s of CPU time | 1 maps: view (a.py:3) |" in page
    assert "| vgg11 | | | no | | - | not finished in 120 s of CPU time |" in page


ALL = [f"pytorchcv/{n}" for n in zoo_networks.PYTORCHCV] + [f"timm/{n}" for n in zoo_networks.TIMM]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_enough_networks_of_each_library_are_pruned(tmp_path: Path) -> None:
    found = pruning_zoo.collect(ALL, tmp_path / "zoo.json", ["ours", "theirs"])
    for library, least in (("pytorchcv", 60), ("timm", 60)):
        rows = [row for name, row in found.items() if name.startswith(library)]
        ours, theirs = (sum(row[side]["ok"] for row in rows) for side in ("ours", "theirs"))
        assert ours >= least
        assert ours > theirs
