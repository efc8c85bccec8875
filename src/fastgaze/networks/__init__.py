"""The networks: a model is a spec (integers, ``core.spec``) and weights (safetensors). All of this room needs torch."""

from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import load_checkpoint, save_checkpoint
from fastgaze.networks.factory import create_model, list_models
from fastgaze.networks.gaze import GazeModel

__all__ = ["GazeModel", "create_model", "list_models", "load_backbone", "load_checkpoint", "save_checkpoint"]
