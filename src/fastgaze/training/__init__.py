"""Fit, teacher, distillation, pruning while training, sweeps."""
