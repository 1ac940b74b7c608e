"""Prediction of a batch, and export of a whole model."""
