"""Fuzzing: invalid input from an authenticated peer.

    python -m tests.fuzz [--seconds 60] [--cases 10000000] [--seed 0] [--keep]

`readers`: each function that parses or reads a peer's bytes, called as in a session, on a channel
with scripted peers (`script`). `channels`: a live channel that expects certain frames, and a peer
that sends other bytes. `sessions`: a whole federation of which one member, the liar, sends one
invalid frame: while other members are missing, in the agreement, at the set-up, within a level, at
its goodbye, or in a service. Each case must raise only Privet's errors, which name the liar, leave
no thread, and stay within a memory limit.

Each different case counts once (`tally`). Failing cases are written to `corpus`, which the tests
repeat every time.
"""
