"""Interrupting federations on purpose, at every phase and in every way, and looking what is left.

    python -m benchmarks.chaos [--interruptions 50] [--at-once 2] [--seed 0] [--keep]

`run_relay`: connections that can be cut. `watched`: a role as a process whose log is read.
`strike`: one interruption, and what must be true after it. `trial`: a federation that suffers some
of them, and its end. `page`: what came of all, as a table.
"""
