"""Everything that a network calls, handed to a tracer.

A ``TorchFunctionMode`` sees every function and method, a patched ``Module.__call__`` every module, and a
``TorchDispatchMode`` whatever both would miss (scripted functions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from fastgaze.pruning.tracing.tracer import Call, Rule, Tracer, ruled
from fastgaze.pruning.tracing.widths import Width, plain


class _Functions(TorchFunctionMode):
    """Sees functions and methods."""

    def __init__(self, tracer: Tracer, follow: Callable[..., object]) -> None:
        super().__init__()
        self.tracer, self.follow = tracer, follow

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return self.follow(self.tracer, func, args, kwargs or {})


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what no function or module accounted for."""

    def __init__(self, tracer: Tracer, follow: Callable[..., object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer, self.follow = tracer, follow

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return self.follow(self.tracer, func, args, kwargs or {})


@contextmanager
def watching(
    tracer: Tracer,
    on_function: Callable[..., object],
    module_rule: Callable[[nn.Module, tuple[object, ...]], Rule | None],
) -> Iterator[None]:
    """Every call inside the block goes through the tracer."""
    plain_call = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if id(module) not in tracer.names or tracer.inside:
            return plain_call(module, *args, **kwargs)
        tracer.reached.add(id(module))
        rule = module_rule(module, args)
        tracer.stack.append(module)
        try:
            if rule is None:
                result = plain_call(module, *args, **kwargs)
                tracer.passed(module, args, result)
                return result
            with _inside_hooks(tracer, module, rule, args):
                return plain_call(module, *args, **kwargs)
        finally:
            tracer.stack.pop()

    with patch.object(nn.Module, "__call__", call), _Kernels(tracer, on_function), _Functions(tracer, on_function):
        yield


@contextmanager
def _inside_hooks(tracer: Tracer, module: nn.Module, rule: Rule, before: tuple[object, ...]) -> Iterator[None]:
    """``rule`` gets what ``forward`` itself reads and returns; hooks of the network's own are followed like its code.

    before  what the network called the module with
    """
    what = f"{type(module).__name__} {tracer.names[id(module)]}".strip()
    named: dict[str, object] = {}
    with ExitStack() as forward:

        def begin(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            forward.enter_context(ruled(tracer))
            for given, x in zip(before, args, strict=False):
                if x is not given and isinstance(x, Tensor):  # masks sit in front of such a hook
                    tracer.keep(tracer.label(x).ids, what, "reads what a hook has changed")
            named.update(kwargs)
            return args, tree_map_only(Width, plain, kwargs)

        def end(_module: nn.Module, args: tuple[object, ...], result: object) -> None:
            rule(Call(tracer, module, what, args, named, result))
            forward.close()

        hooks = module._forward_pre_hooks.values()
        torchs = all(str(getattr(hook, "__module__", "")).startswith("torch.") for hook in hooks)
        handles = (
            module.register_forward_pre_hook(begin, prepend=torchs, with_kwargs=True),  # weight_norm is a hook
            module.register_forward_hook(end, prepend=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
