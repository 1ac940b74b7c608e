"""Whole federations on one machine: experiments, and processes in folders."""
