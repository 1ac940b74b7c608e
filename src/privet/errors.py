"""What can go wrong that is not a bug of ours: each error says who, what, and what to do next.

    PrivetError
    ├── InputError (also a ValueError)   something given by the user cannot be used
    │   ├── ParameterError               a hyper-parameter, option or configuration key
    │   ├── DataError                    a table: its file, columns, rows, ids or label
    │   └── ModelError                   a model file, or a model and data that do not fit
    └── UnavailableError                 something outside this program cannot be had

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
