"""The networks: a model is a spec (integers, ``core.spec``) and weights (safetensors). All of this room needs torch."""

from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import TrainingRecord, load_checkpoint, load_gaze_model, save_checkpoint
from fastgaze.networks.factory import create_model, list_models
from fastgaze.networks.gaze import GazeModel

__all__ = [
    "GazeModel",
    "TrainingRecord",
    "create_model",
    "list_models",
    "load_backbone",
    "load_checkpoint",
    "load_gaze_model",
    "save_checkpoint",
]
