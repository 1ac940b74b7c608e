"""The version of Privet, stated here only."""

__version__ = "0.1.0"
