"""Events, progress and reports of a run."""
