"""``create_model`` and ``list_models``: from a name, or a spec, to a network."""

from typing import Literal, overload

from fastgaze.core.errors import ModelError
from fastgaze.core.spec import EnsembleSpec, Spec, architectures, spec_for
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.networks.gaze import GazeModel

Model = GazeModel | GazeEnsemble


def list_models() -> list[str]:
    """Architectures that ``create_model`` builds."""
    return architectures()


@overload
def create_model(
    architecture: Literal["fastgaze", "densegaze", "deepgaze2", "litegaze"], spec: Spec | None = None
) -> GazeModel: ...
@overload
def create_model(architecture: str, spec: Spec | None = None) -> Model: ...
def create_model(architecture: str, spec: Spec | None = None) -> Model:
    """A network with fresh weights; ``spec`` gives other widths than the paper's."""
    spec = spec_for(architecture) if spec is None else spec
    if spec.architecture != architecture:
        raise ModelError(f"asked for {architecture!r}, but the spec is one of {spec.architecture!r}")
    return GazeEnsemble(spec) if isinstance(spec, EnsembleSpec) else GazeModel(spec)
