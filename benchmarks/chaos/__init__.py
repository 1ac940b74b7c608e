"""Chaos tests: interruptions of federations at every phase, and checks of the outcome.

    python -m benchmarks.chaos [--interruptions 50] [--at-once 2] [--seed 0] [--keep]

`relay`: connections that can be cut. `watched`: a role's process with its log. `strike`: one
interruption, and the checks after it. `trial`: a federation with several interruptions. `page`: the
results as a table.
"""
