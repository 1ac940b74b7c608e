"""Hyper-parameters, column types and the public plan of a training run."""
