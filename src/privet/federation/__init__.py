"""Federations of separate processes: sessions, training, prediction and serving."""
