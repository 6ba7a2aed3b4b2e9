"""Benchmarks: they print figures and ratios, and assert no wall time."""
