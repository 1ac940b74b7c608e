"""Nonsense from a peer whose certificate is good, and what comes of it.

    python -m tests.fuzz [--seconds 60] [--seed 0]

`readers`: bytes of a stranger against everything that parses some. `sessions`: a whole federation
of which one member lies once, in any state: while others are missing, in the agreement, at the
set-up, in the middle of a level, at its goodbye. Only errors of ours may come of it, that name the
liar, and no more than so much memory is taken.

What was found goes into `corpus`, which the tests go through every time.
"""
