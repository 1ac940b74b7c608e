"""Federations on one machine: experiments, comparisons, plots, and processes in folders."""
