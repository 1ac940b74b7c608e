"""Precision."""
