"""The paper's evaluation and more, rerun: measurements, figures, and the page that shows them.

    python -m benchmarks.evidence list                    every measurement: section and key
    python -m benchmarks.evidence run SECTION KEY         one row of a CSV, again
    python -m benchmarks.evidence run [SECTION]           all of them
    python -m benchmarks.evidence show                    figures and docs/results.md, from the CSVs
    python -m benchmarks.evidence calibrate               fit the cost model's constants

`--quick` takes smaller sizes and writes to build/quick. `make bench` and `make bench-quick` run,
then show.
"""
