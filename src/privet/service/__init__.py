"""Whole jobs on real files: experiments, reports, models on disk."""
