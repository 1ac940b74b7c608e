"""Nonsense from a peer whose certificate is good, and what comes of it.

    python -m tests.fuzz [--seconds 60] [--cases 10000000] [--seed 0] [--keep]

`readers`: bytes of a peer against everything that parses or reads some, called as a session calls
it, on a channel whose peers have said everything already (`script`). `channels`: a live channel on
which something is due, and a peer that says something else. `sessions`: a whole federation of which
one member lies once, in any state: while others are missing, in the agreement, at the set-up, in
the middle of a level, at its goodbye, in a service. Only errors of ours may come of it, that name
the liar, no thread is left, and no more than so much memory is taken.

Each case counts once, however often it comes up (`tally`).

What was found goes into `corpus`, which the tests go through every time.
"""
