"""Masked."""
