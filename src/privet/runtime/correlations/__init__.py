"""Correlated randomness: the dealers, preprocessing files, and the participants' side."""
