"""Metrics, protocols, evaluation and benchmarks: they look on from the side."""
