"""Several readouts over one trunk: the DeepGaze II ensemble of the teacher, at the cost of one trunk."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fastgaze.core.spec import EnsembleSpec, GazeSpec
from fastgaze.networks.gaze import GazeModel, Readout, Tail, TwoScaleReadout, make_readout, make_trunk, pad_to_stride


class Member(nn.Module):
    """A readout with its tail: what differs between the members of an ensemble."""

    def __init__(self, readout: Readout | TwoScaleReadout, tail: Tail) -> None:
        super().__init__()
        self.readout, self.tail = readout, tail

    def forward(
        self, features: Tensor, image_size: tuple[int, int], size: tuple[int, int], center_bias: Tensor | None = None
    ) -> Tensor:
        """features (N, maps, h, w) -> log density (N, *size)."""
        log_density: Tensor = self.tail(self.readout(features), image_size, size, center_bias)
        return log_density


class GazeEnsemble(nn.Module):
    """The mean of the members' densities."""

    def __init__(self, spec: EnsembleSpec) -> None:
        super().__init__()
        member = spec.member
        self.member_architecture, self.activation = member.architecture, member.activation
        self.trunk = make_trunk(member.trunk)
        self.heads = nn.ModuleList(Member(make_readout(member), Tail()) for _ in range(spec.members))

    @classmethod
    def of(cls, models: Sequence[GazeModel]) -> "GazeEnsemble":
        """The ensemble of models that share the first one's trunk."""
        first = models[0].spec
        ensemble = cls(EnsembleSpec(f"{first.architecture}-ensemble", first, len(models)))
        ensemble.trunk.load_state_dict(models[0].trunk.state_dict())
        for head, model in zip(ensemble.heads, models, strict=True):
            assert isinstance(head, Member)
            head.readout.load_state_dict(model.readout.state_dict())
            head.tail.load_state_dict(model.tail.state_dict())
        return ensemble.eval()

    @property
    def stride(self) -> int:
        """As ``GazeModel.stride``."""
        return self.trunk.spec.stride

    @property
    def spec(self) -> EnsembleSpec:
        """The widths that the layers have now."""
        head = self.heads[0]
        assert isinstance(head, Member)
        member = GazeSpec(self.member_architecture, self.trunk.spec, head.readout.maps, self.activation)
        return EnsembleSpec(f"{member.architecture}-ensemble", member, len(self.heads))

    def forward(self, image: Tensor, size: tuple[int, int] | None = None, center_bias: Tensor | None = None) -> Tensor:
        """As ``GazeModel.forward``."""
        image_size = (image.shape[-2], image.shape[-1])
        features = self.trunk(pad_to_stride(image, self.stride))
        return self.from_features(features, image_size, size or image_size, center_bias)

    def from_features(
        self, features: Tensor, image_size: tuple[int, int], size: tuple[int, int], center_bias: Tensor | None = None
    ) -> Tensor:
        """features (N, maps, h, w) of the trunk -> log of the mean density (N, *size)."""
        members = torch.stack([head(features, image_size, size, center_bias) for head in self.heads])
        return members.logsumexp(dim=0) - math.log(len(self.heads))
