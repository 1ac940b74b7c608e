"""The errors that Privet raises on purpose, and the exit codes of its commands.

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

Each message states the cause and what to do next. The attributes `peer` and `step` give programs
the cause without parsing the message.

Exit codes of the command line:

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
"""The exit code of a process that a signal interrupted."""


class PrivetError(Exception):
    """The base class of all errors that Privet raises on purpose."""

    exit_code: ClassVar[int] = 1
    """The exit code of the process; a subclass without a code shares that of its parent."""
    peer: str | None = None
    """The participant or dealer that caused the error; None if unknown or not a single one."""
    step: str | None = None
    """The protocol step at which the error occurred, if known."""

    @property
    def kind(self) -> str:
        """The name of the nearest error class of this module, for logs and other processes.

        Other modules derive their own classes to tell cases apart; logs name only the documented
        classes of this module.
        """
        return next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)

    def set_step_if_unknown(self, step: str) -> None:
        """Set the step at which the error occurred, unless it is set already or `step` is empty."""
        self.step = self.step or step or None


class InputError(PrivetError, ValueError):
    """An input from the user cannot be used as it is."""


class ParameterError(InputError):
    """A hyper-parameter, an option or a configuration key is missing, unknown or out of range."""

    exit_code = 3


class DataError(InputError):
    """A table cannot be read or used: the message names its file, column and row."""

    exit_code = 4


class ModelError(InputError):
    """A model file cannot be read, or does not fit the data to predict."""

    exit_code = 5


class UnavailableError(PrivetError):
    """A resource outside Privet (a data set, a directory, a disk, a server) is not available."""

    exit_code = 6


class BusyError(UnavailableError):
    """Another local process already runs the job in this folder.

    That process reports for this participant, so this one sends nothing to its peers.
    """


class PeerError(PrivetError):
    """Another participant failed. The session ends: no step is retried under used masks."""

    exit_code = 7
    cause_rank: int = 0
    """How likely another peer caused this failure (`transport.connection.CauseRank`)."""
    display_name: str | None = None
    """The name of the peer in messages, if `peer` alone is unclear."""

    def __init__(self, peer: str | None, problem: str, step: str | None = None) -> None:
        super().__init__(peer, problem)
        self.peer = peer
        self.problem = problem
        self.step = step or None

    def __str__(self) -> str:
        name = self.display_name or self.peer
        return self.problem if name is None else f"{name}: {self.problem}"


class PeerLostError(PeerError):
    """The connection to a peer closed, or could not be established."""


class PeerFailedError(PeerLostError):
    """A peer cannot join: it reported a failure, or its certificate is not the agreed one."""

    def __init__(self, peer: str, problem: str, peer_exit_code: int = PeerError.exit_code) -> None:
        super().__init__(peer, problem)
        self.peer_exit_code = peer_exit_code
        """The exit code of the kind of error that the peer reported."""


class PeerSilentError(PeerError):
    """A peer sent nothing within the deadline, not even a heartbeat."""


class PeerMisbehavedError(PeerError):
    """A peer sent an invalid frame, or a frame that is not the one due at this step."""


class DisagreementError(PrivetError):
    """Participants differ in a setting they must agree on: the message names each value."""

    exit_code = 9

    def __init__(self, problem: str, peer: str | None = None) -> None:
        super().__init__(problem)
        self.peer = peer


class CorrelationError(PrivetError):
    """Correlated randomness ran out, is out of step with the program, or was used before."""

    exit_code = 8
    peer = "dealer"


class ResultError(PrivetError):
    """A jointly computed result is out of bounds and is discarded."""

    exit_code = 10

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: nothing of this table is kept, and the same commands go on "
            "after the one before. If it happens again there, the data ask for more than the "
            "protocol can compute: train anew with a smaller learning_rate or a larger l2. "
            "Otherwise a share was damaged or a machine computes wrongly: please report it"
        )
