"""From a torch.fx trace to layers and maps: one small rule for each kind of operation.

Every tensor of the trace carries a list with one entry a channel (dimension 1): the number of the map that the
channel belongs to. Rules pass these lists on, concatenate them, or tie their entries; what has no rule is refused.
"""

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import NORMS, Kind, Layer, Map, evaluation_mode

Channels = list[int]

_ELEMENTWISE_MODULES: tuple[type[nn.Module], ...] = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.LogSigmoid,
    nn.Tanh, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.Softsign, nn.Tanhshrink, nn.Threshold,
    nn.Identity, nn.modules.dropout._DropoutNd, nn.PReLU,  # a PReLU with one slope for all
)  # fmt: skip
_WITH_WEIGHT: tuple[type[nn.Module], ...] = (nn.modules.conv._ConvNd, nn.Linear, nn.PReLU, *NORMS)
_SPATIAL_MODULES: tuple[type[nn.Module], ...] = (
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd, nn.modules.pooling._LPPoolNd, nn.Upsample,
    nn.modules.padding._ConstantPadNd, nn.modules.padding._ReflectionPadNd, nn.modules.padding._ReplicationPadNd,
)  # fmt: skip
_CHANNELWISE: set[Any] = {
    F.relu, F.relu_, torch.relu, torch.relu_, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish,
    F.sigmoid, torch.sigmoid, F.tanh, torch.tanh, F.hardtanh, F.hardswish, F.hardsigmoid, F.softplus, F.logsigmoid,
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, torch.exp, torch.log, torch.sqrt, torch.abs,
    torch.neg, torch.clamp, torch.clone, operator.neg,
    F.max_pool1d, F.max_pool2d, F.max_pool3d, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.adaptive_max_pool1d, F.adaptive_max_pool2d,
    F.adaptive_max_pool3d, torch.max_pool2d, F.interpolate, F.upsample,
}  # fmt: skip
_CHANNELWISE_METHODS = {
    "relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "clamp", "clamp_", "exp", "log", "sqrt", "abs", "neg",
    "contiguous", "clone", "float", "double", "half", "bfloat16", "to", "type_as",
}  # fmt: skip
_BINARY: set[Any] = {
    operator.add, operator.iadd, operator.sub, operator.isub, operator.mul, operator.imul, operator.truediv,
    operator.itruediv, operator.pow, torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum,
}  # fmt: skip
_BINARY_METHODS = {"add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "pow", "pow_"}
_CONCAT: set[Any] = {torch.cat, torch.concat, torch.concatenate}
# What a network may ask of a tensor with channels besides its values.
_QUERIES = {"size", "dim", "ndimension", "numel", "is_contiguous", "get_device", "element_size"}
_SOFTMAX: set[Any] = {F.softmax, F.log_softmax, torch.softmax, torch.log_softmax}


def trace_channels(module: nn.Module, example_input: Tensor) -> tuple[list[Layer], list[Map]]:
    """Layers in the order of execution, and maps in the order of their first producer."""
    _refuse_shared_parameters(module)
    try:
        traced = fx.GraphModule(module, fx.Tracer().trace(module))
    except Exception as error:  # torch.fx raises many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PruningError(f"torch.fx cannot trace {type(module).__name__}: {reason}; prune a part it can") from error
    interpreter = _ChannelInterpreter(traced)
    with evaluation_mode(module.modules()), torch.no_grad():
        interpreter.run(example_input)
    return interpreter.finish()


def _refuse_shared_parameters(module: nn.Module) -> None:
    owner: dict[int, str] = {}
    for name, child in module.named_modules():
        for key, parameter in child.named_parameters(recurse=False):
            if owner.setdefault(id(parameter), f"{name}.{key}") != f"{name}.{key}":
                raise PruningError(
                    f"{name}.{key} and {owner[id(parameter)]} share one parameter; prune unshared layers"
                )


class _ChannelInterpreter(fx.Interpreter):
    """Runs a trace and follows every channel; ``finish`` gives layers and maps."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.channels: dict[fx.Node, Channels | None] = {}
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        self.parent: list[int] = []  # union-find over provisional map numbers
        self.fixed: set[int] = set()
        self.records: dict[str, tuple[Kind, Channels, Channels, int]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n] = tuple(result.shape)
        self.channels[n] = self._follow(n, result)
        return result

    # union-find

    def new_maps(self, count: int) -> Channels:
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        return list(range(first, first + count))

    def root(self, index: int) -> int:
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def tie(self, one: Channels, other: Channels) -> None:
        for a, b in zip(one, other, strict=True):
            low, high = sorted((self.root(a), self.root(b)))
            self.parent[high] = low

    # rules

    def _follow(self, n: fx.Node, result: Any) -> Channels | None:
        if n.op == "placeholder":
            return self._fix(self.new_maps(result.shape[1])) if isinstance(result, Tensor) else None
        if n.op == "output":
            for node in n.all_input_nodes:
                self.fixed.update(self.channels[node] or [])
            return None
        if n.op == "get_attr":
            return None
        if not isinstance(result, Tensor):
            self._follow_query(n)
            return None
        rule = self._module_rule if n.op == "call_module" else self._function_rule
        channels = rule(n)
        if result.dim() < 2 or len(channels) != result.shape[1]:
            raise self.refusal(
                n, f"its result of shape {tuple(result.shape)} does not keep the channels in dimension 1"
            )
        return channels

    def _follow_query(self, n: fx.Node) -> None:
        """A result that is no tensor: a size or such. Maps whose number the network reads stay, it would change."""
        sources = [node for node in n.all_input_nodes if self.channels[node] is not None]
        if not sources:
            return
        is_size = n.target == "size" or (n.target is getattr and n.args[1] == "shape")
        if not (n.target is getattr or (n.op == "call_method" and n.target in _QUERIES)):
            raise self.refusal(n, "its result is no single tensor")
        if n.target == "numel" or (is_size and self._reads_channels(n, len(self.shapes[sources[0]]))):
            self._fix(self.channels[sources[0]] or [])

    def _reads_channels(self, size: fx.Node, rank: int) -> bool:
        """Whether the number of channels of a tensor of ``rank`` dimensions is read from its ``size``."""
        asked = None if size.target is getattr else _argument(size, 1, "dim", None)
        if asked is not None:
            return bool(asked % rank == 1)
        used = [user for user in size.users if user.users]  # unpacking reads all of them
        parts = [user.args[1] if user.target is operator.getitem else slice(None) for user in used]
        return any(1 in _indices(part, rank) for part in parts)

    def _module_rule(self, n: fx.Node) -> Channels:
        assert isinstance(n.target, str)
        module = self.fetch_attr(n.target)
        channels = self.source(n)
        if not n.args:
            raise self.refusal(n, "its input is given by name; give it by position")
        if "weight" not in module._parameters and isinstance(module, _WITH_WEIGHT):
            raise self.refusal(n, "its weight is computed (weight_norm and such); make it a parameter again")
        if isinstance(module, nn.modules.conv._ConvNd) and not isinstance(module, nn.modules.conv._ConvTransposeNd):
            return self._conv(n.target, module, channels)
        if isinstance(module, nn.Linear):
            return self._linear(n, module, channels)
        if isinstance(module, NORMS):
            return self._carry(n.target, "norm", channels)
        if isinstance(module, nn.PReLU) and module.num_parameters == len(channels):
            return self._carry(n.target, "prelu", channels)
        if isinstance(module, _ELEMENTWISE_MODULES + _SPATIAL_MODULES):
            return channels
        if isinstance(module, nn.Flatten):
            return self._flatten(n, module.start_dim, module.end_dim)
        if isinstance(module, nn.Softmax | nn.LogSoftmax):
            return self._fix(channels)
        raise self.refusal(n)

    def _function_rule(self, n: fx.Node) -> Channels:
        target, method = n.target, n.target if n.op == "call_method" else None
        if target in _CHANNELWISE or method in _CHANNELWISE_METHODS:
            return self.source(n)
        if target in _BINARY or method in _BINARY_METHODS:
            return self._binary(n)
        if target in _CONCAT:
            return self._concat(n)
        if target is torch.flatten or method == "flatten":
            return self._flatten(n, _argument(n, 1, "start_dim", 0), _argument(n, 2, "end_dim", -1))
        if method in ("view", "reshape") or target is torch.reshape:
            return self._reshape(n)
        if target is torch.mean or method == "mean":
            return self._mean(n)
        if target is F.pad:
            return self._pad(n)
        if target in _SOFTMAX or method in ("softmax", "log_softmax"):
            return self._fix(self.source(n))
        raise self.refusal(n)

    def _conv(self, name: str, module: nn.modules.conv._ConvNd, channels: Channels) -> Channels:
        groups = module.groups
        if groups == 1:
            return self._layer(name, "conv", channels, module.out_channels)
        if groups == module.in_channels:
            multiplier = module.out_channels // groups
            return self._carry(name, "depthwise", [c for c in channels for _ in range(multiplier)])
        self._tie_groups(channels, groups)
        outputs = self._layer(name, "conv", channels, module.out_channels)
        self._tie_groups(outputs, groups)
        return outputs

    def _tie_groups(self, channels: Channels, groups: int) -> None:
        """Groups must keep equal widths: the j-th channels of all groups are removed together."""
        width = len(channels) // groups
        for g in range(1, groups):
            self.tie(channels[:width], channels[g * width : (g + 1) * width])

    def _linear(self, n: fx.Node, module: nn.Linear, channels: Channels) -> Channels:
        if len(self.shapes[n.all_input_nodes[0]]) != 2:
            raise self.refusal(n, "a linear layer on more than (batch, features); flatten first")
        return self._layer(str(n.target), "linear", channels, module.out_features)

    def _layer(self, name: str, kind: Kind, inputs: Channels, width: int) -> Channels:
        if name not in self.records:
            self.records[name] = (kind, inputs, self.new_maps(width), 1)
        else:
            _, first_inputs, outputs, calls = self.records[name]
            self.tie(first_inputs, inputs)
            self.records[name] = (kind, first_inputs, outputs, calls + 1)
        return self.records[name][2]

    def _carry(self, name: str, kind: Kind, channels: Channels) -> Channels:
        if name not in self.records:
            self.records[name] = (kind, [], channels, 1)
        else:
            _, _, first, calls = self.records[name]
            self.tie(first, channels)
            self.records[name] = (kind, [], first, calls + 1)
        return channels

    def _binary(self, n: fx.Node) -> Channels:
        operands = [node for node in n.all_input_nodes if self.channels[node] is not None]
        lists = [self.channels[node] or [] for node in operands]
        if not lists or len({len(c) for c in lists}) != 1:
            raise self.refusal(n, "its operands have different numbers of channels")
        if any(len(self.shapes[a]) != len(self.shapes[operands[0]]) for a in operands):
            raise self.refusal(n, "its operands have different numbers of dimensions")
        self._refuse_constants(n, lists[0])
        for other in lists[1:]:
            self.tie(lists[0], other)
        return lists[0]

    def _all_fixed(self, channels: Channels) -> bool:
        fixed = {self.root(f) for f in self.fixed}
        return all(self.root(c) in fixed for c in channels)

    def _concat(self, n: fx.Node) -> Channels:
        dim = _argument(n, 1, "dim", 0)
        parts = _argument(n, 0, "tensors", ())
        if dim not in (1, 1 - len(self.shapes[parts[0]])):
            raise self.refusal(n, f"it concatenates along dimension {dim}; only channels (dimension 1) are known")
        return [c for node in parts for c in self.channels[node] or []]

    def _flatten(self, n: fx.Node, start: int, end: int) -> Channels:
        node = n.all_input_nodes[0]
        rank = len(self.shapes[node])
        if start % rank != 1 or end % rank != rank - 1:
            raise self.refusal(n, f"it flattens dimensions {start} to {end}; only 1 to -1 is known")
        return self._spread(node)

    def _reshape(self, n: fx.Node) -> Channels:
        """Only (batch, -1): a written-out number of features would be wrong after the first removal."""
        sizes = n.args[1] if len(n.args) == 2 and isinstance(n.args[1], tuple | list) else n.args[1:]
        if len(sizes) != 2 or sizes[1] != -1:
            raise self.refusal(n, "only a reshape to (batch, -1) is known; use torch.flatten(x, 1)")
        return self._spread(n.all_input_nodes[0])

    def _spread(self, node: fx.Node) -> Channels:
        positions = torch.Size(self.shapes[node][2:]).numel()
        return [c for c in self.channels[node] or [] for _ in range(positions)]

    def _mean(self, n: fx.Node) -> Channels:
        rank = len(self.shapes[n.all_input_nodes[0]])
        dims = _argument(n, 1, "dim", (0, 1))
        if any(d % rank < 2 for d in (dims if isinstance(dims, tuple | list) else (dims,))):
            raise self.refusal(n, f"it averages over dimensions {dims}; only spatial ones are known")
        return self.source(n)

    def _pad(self, n: fx.Node) -> Channels:
        if len(_argument(n, 1, "pad", ())) > 2 * (len(self.shapes[n.all_input_nodes[0]]) - 2):
            raise self.refusal(n, "it pads channels")
        return self.source(n)

    def _fix(self, channels: Channels) -> Channels:
        """These stay: inputs, what a softmax couples, what the network counts."""
        self.fixed.update(channels)
        return channels

    def source(self, n: fx.Node) -> Channels:
        """Channels of the one tensor that ``n`` works on."""
        sources = [node for node in n.all_input_nodes if self.channels[node] is not None]
        if len(sources) != 1:
            raise self.refusal(n, f"it works on {len(sources)} tensors with channels, not on one")
        channels = self.channels[sources[0]] or []
        self._refuse_constants(n, channels)
        return channels

    def _refuse_constants(self, n: fx.Node, channels: Channels) -> None:
        constants = [self.shapes[node] for node in n.all_input_nodes if node.op == "get_attr" and node in self.shapes]
        if any(torch.Size(shape).numel() > 1 for shape in constants) and not self._all_fixed(channels):
            raise self.refusal(n, "it combines maps with a tensor of the module that pruning would have to slice")

    def refusal(self, n: fx.Node, reason: str = "") -> PruningError:
        what = str(n.target)
        if n.op == "call_module":
            what = f"{type(self.fetch_attr(str(n.target))).__name__} ({n.target})"
        elif callable(n.target):
            what = f"{getattr(n.target, '__module__', '')}.{getattr(n.target, '__name__', n.target)}"
        why = f": {reason}" if reason else ""
        return PruningError(f"pruning does not know the operation {what} at node {n.name!r}{why}; prune a part without")

    def finish(self) -> tuple[list[Layer], list[Map]]:
        fixed = {self.root(f) for f in self.fixed}
        members: dict[int, list[tuple[str, int]]] = {}
        for name, (kind, _, outputs, _) in self.records.items():
            if kind in ("conv", "linear"):
                for position, channel in enumerate(outputs):
                    members.setdefault(self.root(channel), []).append((name, position))
        numbers = {root: index for index, root in enumerate(members)}
        maps = [Map(k, tuple(members[root]), root not in fixed) for root, k in numbers.items()]
        return list(self._layers(numbers)), maps

    def _layers(self, numbers: dict[int, int]) -> Iterator[Layer]:
        def ids(channels: Channels) -> Tensor:
            return torch.tensor([numbers.get(self.root(c), len(numbers)) for c in channels], dtype=torch.int64)

        for name, (kind, inputs, outputs, calls) in self.records.items():
            yield Layer(name, kind, self.fetch_attr(name), ids(inputs), ids(outputs), calls)


def _argument(n: fx.Node, position: int, name: str, default: Any) -> Any:
    return n.args[position] if len(n.args) > position else n.kwargs.get(name, default)


def _indices(part: Any, rank: int) -> list[int]:
    """The dimensions that ``shape[part]`` reads."""
    chosen = list(range(rank))[part]
    return chosen if isinstance(chosen, list) else [chosen]
