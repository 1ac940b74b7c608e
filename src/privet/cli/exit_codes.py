"""What a process returns. Every kind of error has a code of its own.

0    done
1    a bug of ours: please report it
2    the command line could not be understood
3    a parameter cannot be used
4    a table cannot be read or used
5    a model cannot be read or used
6    something outside this program cannot be had
7    another participant, or the way to it, failed
8    the dealer's randomness does not fit the program, or was used before
9    participants were not asked to do the same, or do not compute the same numbers
10   what the participants computed together cannot be
130  interrupted
"""

from __future__ import annotations

from privet.errors import (
    CorrelationError,
    DataError,
    DisagreementError,
    ModelError,
    ParameterError,
    PeerError,
    PrivetError,
    ResultError,
    UnavailableError,
)

EXIT_CODES: dict[type[PrivetError], int] = {
    ParameterError: 3,
    DataError: 4,
    ModelError: 5,
    UnavailableError: 6,
    PeerError: 7,
    CorrelationError: 8,
    DisagreementError: 9,
    ResultError: 10,
}


def exit_code(error: PrivetError) -> int:
    """Return the code of an error's kind."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)
