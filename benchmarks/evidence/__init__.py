"""Reproduction of the paper's evaluation and more: measurements, plots, and the results page.

    python -m benchmarks.evidence list                    every measurement: section and key
    python -m benchmarks.evidence run SECTION KEY         one row of a CSV, again
    python -m benchmarks.evidence run [SECTION]           all of them
    python -m benchmarks.evidence show                    plots and docs/results.md, from the CSVs
    python -m benchmarks.evidence calibrate               fit the cost model's constants

`--quick` takes smaller sizes and writes to build/quick. `make bench` and `make bench-quick` run,
then show.
"""
