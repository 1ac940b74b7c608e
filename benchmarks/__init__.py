"""Benchmarks, which are not part of the package."""
