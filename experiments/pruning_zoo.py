"""Prune networks that nobody here wrote: which ones does fastgaze.pruning handle, which ones torch-pruning?

    python -m experiments.pruning_zoo --out results/pruning_zoo.json --table docs/pruning-zoo.md [--only timm/resnet18]

Each network of pytorchcv and timm, with random weights, is pruned to 70 % of its FLOPs by Fisher signals and beta* on
random images. It passes if the masked network equals the compacted one to 1e-5 (and to 1e-9 in double precision
without a random third of its maps), training goes on, weights and history load into a fresh network without pickle,
and it can be exported if the unpruned one can. torch-pruning passes if its
pruner reaches 70 % of its own count of operations and the network still runs and trains; nothing else is asked of it.
Every network runs in a process of its own, in which it has a limited CPU time: one that is not finished by then has
not passed. What is in the file already is not run again. On a shared machine, ``--lock`` takes turns of a few minutes.
"""

import argparse
import copy
import importlib
import json
import multiprocessing
import resource
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from experiments import common
from experiments.zoo_networks import PYTORCHCV, TIMM, build, spread

GOAL = 0.7
LABELS = [1, 4, 0, 7]  # of the four images
SECONDS = 120  # of CPU time for one network
STEPS = 15  # in which torch-pruning approaches its largest ratio


ABOUT = """
    Each network has random weights and is pruned to 70 % of its FLOPs by Fisher signals and beta* on random images. It
    passes if the masked network equals the compacted one to 1e-5 (and to 1e-9 in double precision without a random
    third of its maps), training goes on, weights and history load into a fresh network, and it exports if the unpruned
    one does. torch-pruning 1.6.1 passes if it reaches 70 % of its own count of operations and the network still trains.
    The last column says what failed, or which maps stay and why. Written by `experiments/pruning_zoo.py`;
    [pruning.md](pruning.md) has the command.
"""


def first(output: Any) -> Any:
    """The prediction of a network that may return auxiliary ones."""
    return output[0] if isinstance(output, tuple | list) else output


def ours(name: str) -> dict[str, Any]:
    """What fastgaze.pruning makes of one network."""
    import torch

    from fastgaze.pruning import ChannelGraph, Pruner, Target

    make, x = build(name)
    labels = torch.tensor(LABELS)
    torch.manual_seed(0)
    net = make()
    spread(net, x)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    start = time.perf_counter()
    graph = ChannelGraph.trace(net, x)
    traced = time.perf_counter() - start
    shuffled = _without_random_maps(graph, x)
    pruner = Pruner(graph, optimizer=optimizer, compacting=False)
    net.train()

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(first(net(x)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # random weights and four images give some huge ones
        optimizer.step()
        return float(loss.detach())

    with pruner.observe():
        step()
    pruner.prune_to(Target(share=GOAL))
    net.eval()
    with torch.no_grad():
        expected = first(net(x))
        pruner.compact()
        found = first(net(x))
    error = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    result: dict[str, Any] = {
        "share": pruner.total_cost / pruner.history.cost,
        "maps": len(graph.maps),
        "prunable": int(graph.prunable.sum()),
        "error": error,
        "error_random": shuffled,
        "seconds_trace": round(traced, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "kept": [str(kept) for kept in graph.kept],
    }
    assert error < 1e-5, f"masked and compacted differ by {error:.1e}"
    assert shuffled < 1e-9, f"masked and compacted differ by {shuffled:.1e} in double precision without random maps"
    net.train()
    step()
    assert all(torch.isfinite(p).all() for p in net.parameters()), "training gives no finite numbers"
    _reload(make, net, x, pruner.history)
    result["export"] = _export(make, net, x)
    return result


def _without_random_maps(graph: Any, x: Any) -> float:
    """Relative difference of masked and compacted network without a random third of the maps, in double precision.

    The maps of least loss may be those that matter to no output, so that nothing would be seen of an error.
    """
    import torch

    from fastgaze.pruning import compact, masked

    twin = copy.deepcopy(graph)
    twin.root.double().eval()
    generator = torch.Generator().manual_seed(2)
    alive, chosen = twin.alive.clone(), list[int]()
    for index in torch.randperm(len(twin.maps), generator=generator)[: len(twin.maps) // 3].tolist():
        if twin.prunable[index] and twin.removable(index, alive):
            alive[index] = False
            chosen.append(index)
    twin.mark_removed(chosen)
    images = x[:2].double()
    with torch.no_grad():
        with masked(twin):
            expected = first(twin.root(images))
        compact(twin)
        found = first(twin.root(images))
    assert bool((expected[0] != expected[1]).any()), "without random maps, the network tells no images apart"
    return float((found - expected).abs().max() / expected.abs().max())


def _reload(make: Any, net: Any, x: Any, history: Any) -> None:
    """Weights and history into a fresh network."""
    import torch
    from safetensors.torch import load_model, save_model

    from fastgaze.pruning import ChannelGraph, History

    with tempfile.TemporaryDirectory() as folder:
        save_model(net, f"{folder}/net.safetensors")
        history.save(f"{folder}/history.json")
        fresh = make()
        History.load(f"{folder}/history.json").replay(ChannelGraph.trace(fresh, x, check=False))
        load_model(fresh, f"{folder}/net.safetensors")
    net.eval()
    fresh.eval()
    with torch.no_grad():
        assert torch.equal(first(fresh(x)), first(net(x))), "the reloaded network differs"


def _export(make: Any, net: Any, x: Any) -> str:
    """Whether the pruned network exports where the unpruned one does."""
    import torch

    def works(model: Any) -> bool:
        try:
            model.eval().requires_grad_(False)
            torch.jit.trace(lambda images: first(model(images)), x, check_trace=False)  # type: ignore[no-untyped-call]
        except Exception:
            return False
        return True

    pruned = works(net)
    if not pruned:
        assert not works(make()), "the unpruned network exports and the pruned one does not"
    return "yes" if pruned else "neither"


def theirs(name: str) -> dict[str, Any]:
    """What torch-pruning makes of the same network."""
    import torch
    import torch_pruning as tp  # type: ignore[import-untyped]

    make, x = build(name)
    torch.manual_seed(0)
    net = make()
    spread(net, x)
    net.eval()
    before, _ = tp.utils.count_ops_and_params(net, x[:1])
    last = [m for m in net.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d) and _width(m) == 10]
    pruner = tp.pruner.BasePruner(
        net, x[:1], importance=tp.importance.GroupTaylorImportance(), global_pruning=False, pruning_ratio=0.9,
        iterative_steps=STEPS, ignored_layers=last, num_heads=_heads(net),
    )  # fmt: skip
    share = 1.0
    for _ in range(STEPS):
        net.zero_grad()
        torch.nn.functional.cross_entropy(first(net(x)), torch.tensor(LABELS)).backward()  # type: ignore[no-untyped-call]
        pruner.step()
        share = tp.utils.count_ops_and_params(net, x[:1])[0] / before
        if share <= GOAL:
            break
    net.train()
    loss = torch.nn.functional.cross_entropy(first(net(x)), torch.tensor(LABELS))
    loss.backward()  # type: ignore[no-untyped-call]
    assert share <= GOAL, f"ends at {100 * share:.0f} % of the operations"
    return {"share": share}


def _width(module: Any) -> int:
    return int(getattr(module, "out_features", getattr(module, "out_channels", 0)))


def _heads(net: Any) -> dict[Any, int]:
    """Heads of attention layers, as torch-pruning's examples give them."""
    return {m.qkv: m.num_heads for m in net.modules() if hasattr(m, "qkv") and hasattr(m, "num_heads")}


def attempt(name: str, side: str) -> dict[str, Any]:
    """One network in this process: its result, or why it failed."""
    warnings.simplefilter("ignore")
    try:
        return {"ok": True, **(ours if side == "ours" else theirs)(name)}
    except Exception as error:
        lines = str(error).splitlines()
        return {"ok": False, "reason": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]}


def collect(names: list[str], out: Path, sides: list[str], lock: Path | None = None) -> dict[str, Any]:
    """All results, each from a process of its own; those in ``out`` already are kept."""
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    missing = [(name, side) for side in sides for name in names if side not in found.get(name, {})]
    if missing:
        import_libraries()
    turns = common.Turns(lock)
    for name, side in missing:
        turns.take()
        result = _apart(name, side)
        found.setdefault(name, {})[side] = result
        common.write_record(out, found)
        print(name, side, "ok" if result["ok"] else result["reason"], result.get("seconds", ""), flush=True)
    return found


def _apart(name: str, side: str) -> dict[str, Any]:
    """A fork of this process, which has imported the libraries once for all, tries one network."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:

        def work() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 10))
            Path(file.name).write_text(json.dumps(attempt(name, side)))

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
        text = file.read()
    if text:
        return dict(json.loads(text))
    late = process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
    return {"ok": False, "reason": f"not finished in {SECONDS} s of CPU time" if late else "the process died"}


def import_libraries() -> None:
    """What every network needs, once instead of in every process; torch._dynamo comes with the first traced call."""
    from experiments import torchvision_stub

    torchvision_stub.install()
    for library in ("pytorchcv.model_provider", "timm", "torch._dynamo", "torch.distributed.fsdp"):
        importlib.import_module(library)


def page(found: dict[str, Any]) -> str:
    """The results as a document in Markdown."""
    lines = ["# Networks that pruning was tried on", " ".join(ABOUT.split()), ""]
    for library, names in (("pytorchcv", PYTORCHCV), ("timm", TIMM)):
        rows = {name: found[f"{library}/{name}"] for name in names if f"{library}/{name}" in found}
        counts = " | ".join(_passed(rows, side, len(names)) for side in ("ours", "theirs"))
        lines += [f"## {library}", "", "| fastgaze | torch-pruning |", "|---|---|", f"| {counts} |", ""]
        tried = sum("error_random" in row.get("ours", {}) for row in rows.values())
        if tried < len(rows):
            lines += [
                f"{tried} of {len(rows)} networks came as far as the trial without a random third of the maps.",
                "",
            ]
        lines += [
            "| network | maps | prunable | FLOPs left | masked - compacted | torch-pruning | what stays or fails |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_row(name, row) for name, row in rows.items()] + [""]
    return "\n".join(lines)


def _passed(rows: dict[str, Any], side: str, listed: int) -> str:
    tried = [row[side]["ok"] for row in rows.values() if side in row]
    if not tried:
        return f"none of the {listed} listed has been run"
    left = f"; {listed - len(tried)} of the {listed} listed have not been run" if len(tried) < listed else ""
    return f"{sum(tried)} of {len(tried)} passed{left}"


def _row(name: str, row: dict[str, Any]) -> str:
    own, other = row.get("ours", {}), row.get("theirs", {})
    rival = "-" if not other else "yes" if other["ok"] else f"no: {_short(other['reason'])}"
    if not own.get("ok"):
        return f"| {name} | | | no | | {rival} | {_short(own.get('reason', 'not run'))} |"
    why = "; ".join(_short(kept) for kept in own["kept"][:2]) + (" ..." if len(own["kept"]) > 2 else "")
    figures = f"{own['maps']} | {own['prunable']} | {100 * own['share']:.0f} % | {own['error']:.0e}"
    return f"| {name} | {figures} | {rival} | {why} |"


def _short(text: str) -> str:
    text = text.replace("|", "/").replace("\n", " ")
    return text if len(text) <= 110 else f"{text[:107]}..."


def main(arguments: list[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/pruning_zoo.json"))
    parser.add_argument("--table", type=Path, help="write the Markdown table here")
    parser.add_argument("--only", nargs="*", help="library/network; all unless told")
    parser.add_argument("--sides", nargs="*", default=["ours", "theirs"], choices=["ours", "theirs"])
    parser.add_argument("--lock", type=Path, help="a file whose lock is taken for a few minutes at a time")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    names = options.only or [f"pytorchcv/{n}" for n in PYTORCHCV] + [f"timm/{n}" for n in TIMM]
    found = collect(names, options.out, options.sides, options.lock)
    if options.table:
        options.table.write_text(page(found))


if __name__ == "__main__":
    main()
