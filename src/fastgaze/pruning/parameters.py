"""Fisher pruning of single parameters (equation 7 of the paper), with masks that hold through training.

    delta_loss_k = theta_k^2 / (2 N) * sum over images of g_nk^2,   g_nk = dL_n / dtheta_k

Gradients of single images are computed for convolutions and linear layers, where the weights of a network are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import NORMS, evaluation_mode
from fastgaze.pruning.probe import Reduction

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def squared_gradients(module: nn.Module, x: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Sum over images of the squared gradient of every weight and bias, from input and output gradient of a layer."""
    if isinstance(module, nn.Linear):
        weight, bias = grad.square().T @ x.square(), grad.square().sum(0)  # rank one: the square of g x^T
    else:
        assert isinstance(module, CONVOLUTIONS)
        weight, bias = _conv_squares(module, x, grad), grad.flatten(2).sum(2).square().sum(0)
    return {"weight": weight.double(), "bias": bias.double()}


def _conv_squares(module: nn.modules.conv._ConvNd, x: Tensor, grad: Tensor) -> Tensor:
    """One image at a time, by the convolution's own backward pass with respect to its weight."""
    squares = torch.zeros_like(module.weight, dtype=torch.float64)
    options = [module.stride, module.padding, module.dilation, False, [0] * len(module.kernel_size), module.groups]
    weight = module.weight.detach().to(x.dtype)
    for image, outer in zip(x, grad, strict=True):
        found = torch.ops.aten.convolution_backward(
            outer[None].contiguous(), image[None], weight, None, *options, [False, True, False]
        )
        squares += found[1].double().square()
    return squares


class ParameterPruner:
    """Zeroes single weights of the convolutions and linear layers of ``module`` and keeps them zero.

    optimizer  masked weights are zeroed again after each of its steps
    biases     prune biases too
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer | None = None, *, biases: bool = False) -> None:
        self.module = module
        self.layers = {
            name: child for name, child in module.named_modules() if isinstance(child, (*CONVOLUTIONS, nn.Linear))
        }
        _refuse_transposed(module)
        keys = ("weight", "bias") if biases else ("weight",)
        self.parameters: dict[str, nn.Parameter] = {}
        for name, child in self.layers.items():
            _refuse_padding(name, child)
            self.parameters.update({f"{name}.{k}": p for k in keys if (p := getattr(child, k)) is not None})
        self.masks = {name: torch.ones_like(p, dtype=torch.bool) for name, p in self.parameters.items()}
        self.squares = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in self.parameters.items()}
        self.images = 0
        self._hook = None if optimizer is None else optimizer.register_step_post_hook(lambda *_: self.apply())

    @contextmanager
    def observe(self, reduction: Reduction = "mean") -> Iterator[None]:
        """Add the squared gradients of the images of one batch: one forward and one backward pass in the block.

        Every layer must run once: what is not measured would count as worthless and go first.
        """
        found: dict[str, dict[str, Tensor]] = {}
        seen: list[int] = []
        handles = [
            child.register_forward_hook(self._forward_hook(name, reduction, found, seen))
            for name, child in self.layers.items()
        ]
        try:
            with evaluation_mode(m for m in self.module.modules() if isinstance(m, NORMS)):
                yield
        finally:
            for handle in handles:
                handle.remove()
        if not seen:
            raise PruningError("no backward pass reached the network inside observe(); call backward() in the block")
        if silent := [name for name in self.layers if name not in found]:
            raise PruningError(
                f"{silent[0]} got no gradient inside observe(): it did not run, or the loss does not depend on it; "
                "prune a part of the network without it"
            )
        self.images += seen[0]
        for name, squares in found.items():
            for key, value in squares.items():
                if f"{name}.{key}" in self.squares:
                    self.squares[f"{name}.{key}"] += value

    def _forward_hook(
        self, name: str, reduction: Reduction, found: dict[str, dict[str, Tensor]], seen: list[int]
    ) -> Callable[..., object]:
        def report(x: Tensor, grad: Tensor) -> None:
            if name in found:
                raise PruningError(f"{name} ran twice inside observe(); open one observe() for each batch")
            wide = torch.promote_types(x.dtype, torch.float32)
            seen.append(len(x))
            scale = len(x) ** 2 if reduction == "mean" else 1
            squares = squared_gradients(self.layers[name], x.to(wide), grad.to(wide))
            found[name] = {key: value * scale for key, value in squares.items()}

        def after(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if not torch.is_grad_enabled():
                return None
            x = args[0].detach()  # the layer's input: a closure over the output itself would never be freed
            if isinstance(module, nn.Linear) and x.dim() != 2:
                raise PruningError(f"{name} reads {tuple(x.shape)}; a linear layer must read (images, features) here")
            if not output.requires_grad:  # frozen, behind frozen layers: its gradient is wanted all the same
                output = output.detach().requires_grad_().clone()
            output.register_hook(lambda grad: report(x, grad))  # type: ignore[no-untyped-call]
            return output

        return after

    def delta_loss(self) -> dict[str, Tensor]:
        """float64, in the shape of each parameter: the expected rise of the loss when it is set to zero."""
        if self.images == 0:
            raise PruningError("no image was observed since the last removal; run a batch inside observe() first")
        return {
            name: p.detach().double().square() * self.squares[name] / (2 * self.images)
            for name, p in self.parameters.items()
        }

    def prune(self, count: int, scores: dict[str, Tensor] | None = None) -> None:
        """Zero the ``count`` present parameters with the lowest scores (``delta_loss`` unless told); forget signals."""
        scores = self.delta_loss() if scores is None else scores
        names = list(self.parameters)
        flat = torch.cat([torch.where(self.masks[n], scores[n].double(), torch.inf).flatten() for n in names])
        present = int(torch.isfinite(flat).sum())
        if not 0 < count <= present:
            raise PruningError(f"cannot remove {count} parameters; {present} are present")
        gone = torch.zeros_like(flat, dtype=torch.bool)
        gone[torch.topk(flat, count, largest=False).indices] = True
        for name, part in zip(names, torch.split(gone, [self.masks[n].numel() for n in names]), strict=True):
            self.masks[name] &= ~part.view_as(self.masks[name])
        self.apply()
        self.images = 0
        for square in self.squares.values():
            square.zero_()

    def apply(self) -> None:
        """Set the masked parameters to zero."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.mul_(self.masks[name])

    def close(self) -> None:
        """Stop zeroing after optimizer steps."""
        if self._hook is not None:
            self._hook.remove()

    @property
    def left(self) -> int:
        """Number of parameters that are not masked."""
        return sum(int(mask.sum()) for mask in self.masks.values())


def _refuse_transposed(module: nn.Module) -> None:
    for name, child in module.named_modules():
        if isinstance(child, nn.modules.conv._ConvTransposeNd | nn.Bilinear | nn.RNNBase):
            raise PruningError(
                f"{name} is a {type(child).__name__}, whose gradients of single images are not computed here; prune a "
                "part of the network without it"
            )


def _refuse_padding(name: str, module: nn.Module) -> None:
    if isinstance(module, CONVOLUTIONS) and (isinstance(module.padding, str) or module.padding_mode != "zeros"):
        given = f"padding={module.padding!r}, padding_mode={module.padding_mode!r}"
        raise PruningError(f"{name} has {given}; gradients of single images need zero padding given as numbers")
