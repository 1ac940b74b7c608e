"""What can go wrong that is not a bug of ours: each error says who, what, and what to do next.

    PrivetError
    ├── InputError (also a ValueError)   something given by the user cannot be used
    │   ├── ParameterError               a hyper-parameter, option or configuration key
    │   ├── DataError                    a table: its file, columns, rows, ids or label
    │   └── ModelError                   a model file, or a model and data that do not fit
    ├── UnavailableError                 something outside this program cannot be had
    │   └── BusyError                    another process of ours is at it already
    ├── PeerError                        another participant, or the way to it, failed
    │   ├── PeerLostError                its connection closed or could not be made
    │   │   └── PeerFailedError          it cannot take part, so nobody waits for it
    │   ├── PeerSilentError              nothing was heard from it for too long
    │   └── PeerMisbehavedError          it sent what the protocol does not allow here
    ├── DisagreementError                participants were not asked to do the same
    ├── CorrelationError                 the dealer's randomness does not fit, or was used
    └── ResultError                      what was computed together cannot be

Whom an error blames is not only in its words: `peer` and `step` say it to programs.

What a process of the command line returns:

    0    done
    1    a bug of ours: please report it
    2    the command line could not be understood
    3    a parameter cannot be used (ParameterError)
    4    a table cannot be read or used (DataError)
    5    a model cannot be read or used (ModelError)
    6    something outside this program cannot be had (UnavailableError)
    7    another participant, or the way to it, failed (PeerError)
    8    the dealer's randomness does not fit the program, or was used before (CorrelationError)
    9    participants were not asked to do the same, or do not compute the same numbers
         (DisagreementError)
    10   what the participants computed together cannot be (ResultError)
    130  interrupted, by Ctrl-C or SIGTERM
"""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_CODE_INTERRUPTED: Final = 130
"""The exit code of one that was asked to end."""


class PrivetError(Exception):
    """The root of everything this package raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What the process returns. Every kind that is raised has a code of its own."""
    peer: str | None = None
    """Who is to blame, if it is one other participant or the dealer, and known."""
    step: str | None = None
    """Which step of the program it happened at, if it is known."""

    @property
    def kind(self) -> str:
        """The name of the kind above that it is of, for logs and for other processes.

        A module that has to tell cases apart may have a class of its own below one of these; who
        reads a log knows only these.
        """
        return next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)

    def set_step_if_unknown(self, step: str) -> None:
        """Note the step that it happened at, unless it is known already or there is none."""
        self.step = self.step or step or None


class InputError(PrivetError, ValueError):
    """Something given by the user cannot be used as it is."""


class ParameterError(InputError):
    """A hyper-parameter, an option or a configuration key is missing, unknown or out of range."""

    exit_code = 3


class DataError(InputError):
    """A table cannot be read or used: the message names its file, column and row."""

    exit_code = 4


class ModelError(InputError):
    """A model file cannot be read, or does not fit the data it is asked about."""

    exit_code = 5


class UnavailableError(PrivetError):
    """Something outside this program (a data set, a directory, a disk) cannot be had."""

    exit_code = 6


class BusyError(UnavailableError):
    """Another process of ours is at it already: it speaks for us, and we keep quiet."""


class PeerError(PrivetError):
    """Another participant failed. The session is over: nothing is retried under old masks."""

    exit_code = 7
    cause_rank: int = 0
    """How likely the peer only failed because another one did (`transport.connection.Doubt`)."""
    display_name: str | None = None
    """What the peer is called in words, if its name says too little."""

    def __init__(self, peer: str | None, problem: str, step: str | None = None) -> None:
        super().__init__(peer, problem)
        self.peer = peer
        self.problem = problem
        self.step = step or None

    def __str__(self) -> str:
        who = self.display_name or self.peer
        return self.problem if who is None else f"{who}: {self.problem}"


class PeerLostError(PeerError):
    """A peer's connection closed, or could not be made."""


class PeerFailedError(PeerLostError):
    """A peer cannot take part: it says so, or what answers in its place is not the agreed one."""

    def __init__(self, peer: str, problem: str, peer_exit_code: int = PeerError.exit_code) -> None:
        super().__init__(peer, problem)
        self.peer_exit_code = peer_exit_code
        """The exit code that tells in which kind of way it failed."""


class PeerSilentError(PeerError):
    """Nothing was heard from a peer for longer than the deadline, not even a sign of life."""


class PeerMisbehavedError(PeerError):
    """A peer sent bytes that are no frame, or a frame that is not the one due at this step."""


class DisagreementError(PrivetError):
    """Participants differ in what they must agree on: the message says who has what."""

    exit_code = 9

    def __init__(self, problem: str, peer: str | None = None) -> None:
        super().__init__(problem)
        self.peer = peer


class CorrelationError(PrivetError):
    """Correlated randomness ran out, is out of step with the program, or was used before."""

    exit_code = 8
    peer = "dealer"


class ResultError(PrivetError):
    """What the participants computed together is out of all bounds: nothing is built on it."""

    exit_code = 10

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: nothing of this table is kept, and the same commands go on "
            "after the one before. If it happens again there, the data ask for more than the "
            "protocol can compute: train anew with a smaller learning_rate or a larger l2. "
            "Otherwise a share was damaged or a machine computes wrongly: please report it"
        )
