"""Runtimes of participants and dealers: the only package that opens or reveals values."""
