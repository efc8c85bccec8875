"""Pretrained trunks: from a local file, or by name from a cache that checks SHA-256.

Files are keyed as torchvision's (``features.0.weight``), those of EfficientNet-lite as in its port to torch
(``_conv_stem.weight``); safetensors or .pth, and a .pth is read with ``weights_only``, so nothing in it is executed.
"""

import hashlib
import math
import re
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fastgaze.core.errors import BackboneError
from fastgaze.core.files import cache_dir
from fastgaze.core.spec import VGG_BLOCKS
from fastgaze.networks.checkpoint import BackboneRecord
from fastgaze.networks.densenet import DenseNet
from fastgaze.networks.lite import LiteNet, load_efficientnet_lite, load_mobilenetv2
from fastgaze.networks.vgg import VGG
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD

State = dict[str, Tensor]

# torchvision's files; its file names end in the first eight digits of their SHA-256.
_URL = "https://download.pytorch.org/models/"
_TORCHVISION = {
    "vgg11": "vgg11-8a719046.pth",
    "vgg13": "vgg13-19584684.pth",
    "vgg16": "vgg16-397923af.pth",
    "vgg19": "vgg19-dcbb9e9d.pth",
    "densenet121": "densenet121-a639ec97.pth",
    "mobilenetv2": "mobilenet_v2-b0353104.pth",
}
# Other files known to hold the same layers, by full SHA-256.
_KNOWN = {
    "vgg16.safetensors": "cabd922aeb0dd6d56f2bed33221aee74b7f1e760ddd105c0e0891606cbab6d0d",
    "vgg19.safetensors": "4433b737703b39246d361a9983d6ab263ce8845715fa550d8ac62f9526a6ef87",
    "densenet121.safetensors": "ae937745bdab5558ed35ed94e68f29e32402182f87d6f9b30ea659a68550e878",
    "efficientnet-lite0.safetensors": "44a4126c2acbe185cb4cf09091b641ae31c129e22e8b0439a844749edce772e0",
    "efficientnet-lite1.safetensors": "40df52688ab4cb9966ab21e5584b91857db6a8bfc59e91376090d1c6c5b09c0a",
    "efficientnet-lite2.safetensors": "ab469a060436a84eacdb879a5253268470a51910dfb78ef294f3e44c8aec650c",
    "mobilenetv2.safetensors": "a422b4054f7362952383b12aa90f6dd8477ba881b5446de5a650115974c9e5bc",
}
_NAMES = sorted({*_TORCHVISION, *(Path(file).stem for file in _KNOWN)})


def load_backbone(trunk: VGG | DenseNet | LiteNet, source: str | Path, sample: Tensor | None = None) -> BackboneRecord:
    """Fill a trunk with pretrained weights; returns what was done, for the training record.

    source: a file, or one of the names vgg11, vgg13, vgg16, vgg19, densenet121, efficientnet-lite0 to 2, mobilenetv2.
    sample: a few normalised images (N, 3, H, W), on which each layer of a VGG trunk is rescaled to unit spread.
        ReLU and max-pooling pass a positive factor on, so the network stays the same up to one factor per layer;
        a readout of several layers needs it, since their spreads differ by a factor of 50. When a trunk takes
        only the matching layers of another VGG, the missing layers have changed the scale, and a sample is required.
    """
    path = find_backbone(source)
    state = read_backbone(path)
    digest = _sha256(path)
    match trunk:
        case DenseNet():
            _load_densenet(trunk, state, path)
            return BackboneRecord(path.name, digest, "all")
        case LiteNet():
            _load_lite(trunk, state, path)
            return BackboneRecord(path.name, digest, "all")
        case VGG():
            layers, spreads = _load_vgg(trunk, state, path, sample)
            return BackboneRecord(path.name, digest, layers, spreads)


def refill_backbone(trunk: VGG, record: BackboneRecord, source: str | Path | None = None) -> None:
    """Fill a trunk as ``load_backbone`` did when it gave ``record``, without the sample that it was rescaled on.

    source: the file, by default that of the recorded name in the cache. Other weights than the recorded ones are
    refused.
    """
    name = Path(record.file).stem.split("-")[0]
    own = cache_dir() / record.file
    path = find_backbone(source or (own if own.is_file() else name))
    known = [_KNOWN.get(f"{name}.safetensors"), _TORCHVISION.get(name, "").removesuffix(".pth").partition("-")[2]]
    if not any(digest and _sha256(path).startswith(digest) for digest in (record.sha256, *known)):
        raise BackboneError(f"{path} is not the {name} that the network was trained on; give {record.file}")
    _copy_vgg(trunk, _vgg_layers(read_backbone(path), path)[1], path)
    _divide(trunk, record.spreads)


@torch.no_grad()
def _divide(trunk: VGG, spreads: Mapping[str, float]) -> None:
    """Divide each layer's output by its recorded spread: its input has been divided by those before it."""
    before = 1.0
    for name, spread in spreads.items():
        conv = trunk.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        assert conv.bias is not None
        conv.weight.div_(spread)
        before *= spread
        conv.bias.div_(before)


def find_backbone(source: str | Path) -> Path:
    """The path of a file, or of a name in the cache, into which it is fetched first if it is not there."""
    path = Path(source)
    if path.is_file():
        return path
    name = str(source)
    if name not in _NAMES:
        raise BackboneError(f"no file and no backbone named {name!r}; names are {', '.join(_NAMES)}")
    for file in filter(None, (f"{name}.safetensors", _TORCHVISION.get(name))):
        if (cached := cache_dir() / file).is_file():
            check_sha256(cached)
            return cached
    if name not in _TORCHVISION:
        raise BackboneError(
            f"{name} is not in {cache_dir()} and has no address to fetch it from; get {name}.safetensors with "
            "`make backbones` in a checkout, set FASTGAZE_CACHE to a folder that has it, or give the file's path"
        )
    return _fetch(name)


def _fetch(name: str) -> Path:
    target = cache_dir() / _TORCHVISION[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = target.stem.rsplit("-", 1)[1]
    try:
        torch.hub.download_url_to_file(_URL + target.name, str(target), hash_prefix=prefix, progress=False)
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        raise BackboneError(
            f"{name} is not in {cache_dir()} and could not be fetched ({error}); put {target.name} or "
            f"{name}.safetensors there, set FASTGAZE_CACHE to a folder that has it, or give the file's path"
        ) from error
    return target


def check_sha256(path: Path) -> None:
    """Refuse a file of the cache that is not the one its name promises."""
    expected = _KNOWN.get(path.name) or path.stem.rsplit("-", 1)[-1]
    if not (found := _sha256(path)).startswith(expected):
        raise BackboneError(
            f"{path}: SHA-256 {found[:16]}... instead of {expected[:16]}...; delete the file and get it again"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_backbone(path: Path) -> State:
    """The state dict of a file in torchvision's layout."""
    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        raise BackboneError(f"{path}: not a readable weight file ({str(error).splitlines()[0]})") from error
    except Exception as error:  # torch.load raises pickle.UnpicklingError for anything but weights
        raise BackboneError(f"{path}: refused, it holds more than weights ({type(error).__name__})") from error
    if not isinstance(state, dict) or not any(key.startswith(("features.", "_conv_stem.")) for key in state):
        raise BackboneError(f"{path}: no 'features.*' weights in it; a file in torchvision's layout is needed")
    return state


def _vgg_layers(state: State, path: Path) -> tuple[tuple[int, ...], dict[str, tuple[Tensor, Tensor]]]:
    """Convolutions per block, and weight and bias by name (``conv3_2``)."""
    indices = sorted(int(match[1]) for key in state if (match := re.fullmatch(r"features\.(\d+)\.weight", key)))
    depths = next((tuple(map(len, b)) for b in VGG_BLOCKS.values() if sum(map(len, b)) == len(indices)), None)
    if depths is None:
        raise BackboneError(f"{path}: {len(indices)} convolutions, but VGG-11, 13, 16 and 19 have 8, 10, 13 and 16")
    names = [f"conv{b}_{c}" for b, depth in enumerate(depths, 1) for c in range(1, depth + 1)]
    pairs = ((state[f"features.{i}.weight"], state[f"features.{i}.bias"]) for i in indices)
    return depths, dict(zip(names, pairs, strict=True))


def _load_vgg(
    trunk: VGG, state: State, path: Path, sample: Tensor | None
) -> tuple[Literal["all", "matching"], dict[str, float]]:
    """Which layers were taken, and what each was divided by."""
    donor, kernels = _vgg_layers(state, path)
    if donor == trunk.depths:
        return "all", _copy_vgg(trunk, kernels, path, sample)
    if sample is None:
        raise BackboneError(
            f"{path.name} has blocks of {donor} convolutions, the trunk {trunk.depths}: "
            "give sample images to take the matching layers and rescale them"
        )
    return "matching", _copy_vgg(trunk, kernels, path, sample)


@torch.no_grad()
def _copy_vgg(
    trunk: VGG, kernels: dict[str, tuple[Tensor, Tensor]], path: Path, sample: Tensor | None = None
) -> dict[str, float]:
    """Copy layers by name; with a sample, divide each by the spread of its output, in order."""
    spreads: dict[str, float] = {}
    x = sample
    for b, depth in enumerate(trunk.depths, 1):
        for c in range(1, depth + 1):
            name, conv = f"conv{b}_{c}", trunk.conv(b, c)
            if name not in kernels or kernels[name][0].shape != conv.weight.shape:
                raise BackboneError(f"{path}: its {name} does not fit a trunk layer of shape {list(conv.weight.shape)}")
            conv.weight.copy_(kernels[name][0])
            assert conv.bias is not None
            conv.bias.copy_(kernels[name][1] / math.prod(spreads.values()))  # the input has been divided by these
            if x is not None:
                spreads[name] = _to_unit_spread(conv, x)
                x = trunk.relu(conv(x))
        if x is not None and b < len(trunk.depths):
            x = trunk.pool(x)
    return spreads


def _to_unit_spread(conv: nn.Conv2d, x: Tensor) -> float:
    spread = float(conv(x).std())
    conv.weight.div_(spread)
    assert conv.bias is not None
    conv.bias.div_(spread)
    return spread


def _load_densenet(trunk: DenseNet, state: State, path: Path) -> None:
    # torchvision's own .pth has `denselayer1.norm.1.weight` where the module says `norm1`.
    renamed = {
        re.sub(r"(norm|relu|conv)\.([12])\.", r"\1\2.", key.removeprefix("features.")): t for key, t in state.items()
    }
    wanted = {name: tensor for name, tensor in trunk.state_dict().items() if not name.endswith("num_batches_tracked")}
    for name, tensor in wanted.items():
        if name not in renamed or renamed[name].shape != tensor.shape:
            found = list(renamed[name].shape) if name in renamed else "absent"
            raise BackboneError(f"{path}: {name} is {found}, the trunk needs {list(tensor.shape)}")
    trunk.load_state_dict({name: renamed[name] for name in wanted}, strict=False)


def _load_lite(trunk: LiteNet, state: State, path: Path) -> None:
    if "_conv_stem.weight" in state:
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        faults = load_efficientnet_lite(trunk, state, mean, std)
    else:
        faults = load_mobilenetv2(trunk, state)
    if faults:
        raise BackboneError(f"{path}: {faults[0]} is absent or does not fit the trunk; take the trunk of this file")
