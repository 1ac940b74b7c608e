"""Validated values: frozen, strictly typed, without unknown keys; every error names its key."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from privet.errors import ParameterError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_REPORTED_ERRORS = 5
_MAX_FILE_BYTES = 1 << 24  # for files written by people


class StrictSchema(BaseModel):
    """The base of immutable models that accept exactly the declared keys and types.

    Configuration, files and messages derive from it; they differ in how they are read, and in the
    error that an invalid value raises.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Config(StrictSchema):
    """The base of all configuration: read from TOML; an invalid value raises ParameterError."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ParameterError(format_validation_error(error)) from None

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Create an instance from values of unknown types."""
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an instance from a TOML file; every error names the file."""
        _, values = read_toml(path)
        try:
            return cls.parse(values)
        except ParameterError as error:
            raise ParameterError(f"{path}: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML text; raise ValueError if it is not valid TOML."""
    return tomllib.loads(text)


def read_toml(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its values; every error names the file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ParameterError(f"{path}: is too long for such a file; is it another one?")
        text = content.decode()
        values = parse_toml(text)
        if "\\u0000" in json.dumps(values, default=str):  # not valid in a name or path
            raise ParameterError(f"{path}: holds a character of code 0; leave it out")
        return text, values
    except OSError as error:
        raise ParameterError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path}: not a text file in UTF-8") from None
    except ParameterError:
        raise
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path}: not TOML: {error}") from None


def is_printable(text: str) -> bool:
    """Tell whether a name is safe to show in messages, tables and other participants' terminals."""
    return text.isprintable() and bool(text.strip())


def quote_untrusted(text: object, max_length: int = 80) -> str:
    """Return untrusted text in a form safe to show: shortened, without control characters."""
    shown = str(text)[:max_length]
    return shown if shown.isprintable() else repr(shown)


def check_name(name: str) -> None:
    """Raise ParameterError unless a name is valid in file names, certificates and messages."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ParameterError(
            f"name: {name!r} is none: up to 64 of A-Z, a-z, 0-9, '_', '.' and '-', "
            "of which the first is a letter or a digit"
        )


def format_validation_error(error: ValidationError) -> str:
    """Return one line that lists the invalid keys, the errors and the values found."""
    messages = []
    details = error.errors(include_url=False)
    for detail in details[:_MAX_REPORTED_ERRORS]:
        key = ".".join(str(part) for part in detail["loc"]) or "the whole"
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        if detail["type"] == "extra_forbidden":
            messages.append(f"{key}: is not known")
        elif detail["type"] == "missing":
            messages.append(f"{key}: is required")
        elif detail["type"] == "value_error":
            messages.append(_format_check_error(detail["loc"], detail["ctx"]["error"]))
        else:
            messages.append(f"{key}: {message}, got {_abbreviate(detail['input'])}")
    if len(details) > _MAX_REPORTED_ERRORS:
        messages.append(f"and {len(details) - _MAX_REPORTED_ERRORS} more")
    return "; ".join(messages)


def _format_check_error(path: tuple[int | str, ...], error: Exception) -> str:
    """Return the message of one of our validators; a nested ParameterError starts with its key."""
    key = ".".join(str(part) for part in path)
    separator = "." if isinstance(error, ParameterError) else ": "
    return f"{key}{separator}{error}" if key else str(error)


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
