"""What can go wrong that is not a bug of ours: each error says who, what, and what to do next.

    PrivetError
    ├── InputError (also a ValueError)   something given by the user cannot be used
    │   ├── ParameterError               a hyper-parameter, option or configuration key
    │   ├── DataError                    a table: its file, columns, rows, ids or label
    │   └── ModelError                   a model file, or a model and data that do not fit
    ├── UnavailableError                 something outside this program cannot be had
    ├── PeerError                        another participant, or the way to it, failed
    │   ├── PeerLostError                its connection closed or could not be made
    │   ├── PeerSilentError              nothing was heard from it for too long
    │   └── PeerMisbehavedError          it sent what the protocol does not allow here
    ├── DisagreementError                participants were not asked to do the same
    ├── CorrelationError                 the dealer's randomness does not fit, or was used
    └── ResultError                      what was computed together cannot be

The command line maps each class to an exit code of its own (`privet.cli`).
"""

from __future__ import annotations


class PrivetError(Exception):
    """The root of everything this package raises on purpose."""


class InputError(PrivetError, ValueError):
    """Something given by the user cannot be used as it is."""


class ParameterError(InputError):
    """A hyper-parameter, an option or a configuration key is missing, unknown or out of range."""


class DataError(InputError):
    """A table cannot be read or used: the message names its file, column and row."""


class ModelError(InputError):
    """A model file cannot be read, or does not fit the data it is asked about."""


class UnavailableError(PrivetError):
    """Something outside this program (a data set, a directory, a disk) cannot be had."""


class PeerError(PrivetError):
    """Another participant failed. The session is over: nothing is retried under old masks."""

    def __init__(self, peer: str, problem: str) -> None:
        super().__init__(peer, problem)
        self.peer = peer
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.peer}: {self.problem}"


class PeerLostError(PeerError):
    """A peer's connection closed, or could not be made."""


class PeerSilentError(PeerError):
    """Nothing was heard from a peer for longer than the deadline, not even a sign of life."""


class PeerMisbehavedError(PeerError):
    """A peer sent bytes that are no frame, or a frame that is not the one due at this step."""


class DisagreementError(PrivetError):
    """Participants differ in what they must agree on: the message says who has what."""


class CorrelationError(PrivetError):
    """Correlated randomness ran out, is out of step with the program, or was used before."""


class ResultError(PrivetError):
    """What the participants computed together is out of all bounds: nothing is built on it."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: a share was damaged, a machine computes wrongly, or the data "
            "are beyond what the protocol can do. Nothing of this table is kept; the same commands "
            "go on after the one before. If it happens again, please report it"
        )
