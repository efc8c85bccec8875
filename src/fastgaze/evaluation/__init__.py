"""Metrics, protocols, evaluation and benchmarks."""
