"""Objectives: what a model learns, with losses, gradients, bounds and metrics."""
