"""Checked values: frozen, typed, unknown keys refused, every complaint with its key."""

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
_MAX_FILE_BYTES = 1 << 24  # of a file that a person writes


class StrictSchema(BaseModel):
    """Values that do not change, of the types they are declared with, and no others.

    The base of what a person configures and of what a file or a message holds; these differ in how
    they are read, and in the error that a bad value raises.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Config(StrictSchema):
    """The base of everything a person configures: read from TOML, refused by ParameterError."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ParameterError(format_validation_error(error)) from None

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Make one from values whose types are not known."""
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read one from a TOML file; every complaint names the file."""
        _, values = read_toml(path)
        try:
            return cls.parse(values)
        except ParameterError as error:
            raise ParameterError(f"{path}: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return what a text in TOML says; raise ValueError if it is none."""
    return tomllib.loads(text)


def read_toml(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its values; every complaint names the file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ParameterError(f"{path}: is too long for such a file; is it another one?")
        text = content.decode()
        values = parse_toml(text)
        if "\\u0000" in json.dumps(values, default=str):  # no name or path may have one
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
    """Tell whether a name can stand in a message, a table and another participant's terminal."""
    return text.isprintable() and bool(text.strip())


def quote_untrusted(text: object, max_length: int = 80) -> str:
    """Return what somebody else wrote, fit to be shown: short, and without control characters."""
    shown = str(text)[:max_length]
    return shown if shown.isprintable() else repr(shown)


def check_name(name: str) -> None:
    """Raise ParameterError unless a name can stand in file names, certificates and messages."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ParameterError(
            f"name: {name!r} is none: up to 64 of A-Z, a-z, 0-9, '_', '.' and '-', "
            "of which the first is a letter or a digit"
        )


def format_validation_error(error: ValidationError) -> str:
    """Say in one line which keys are wrong, how, and what was given."""
    complaints = []
    details = error.errors(include_url=False)
    for detail in details[:_MAX_REPORTED_ERRORS]:
        where = ".".join(str(part) for part in detail["loc"]) or "the whole"
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        if detail["type"] == "extra_forbidden":
            complaints.append(f"{where}: is not known")
        elif detail["type"] == "missing":
            complaints.append(f"{where}: is required")
        elif detail["type"] == "value_error":
            complaints.append(_format_check_error(detail["loc"], detail["ctx"]["error"]))
        else:
            complaints.append(f"{where}: {message}, got {_abbreviate(detail['input'])}")
    if len(details) > _MAX_REPORTED_ERRORS:
        complaints.append(f"and {len(details) - _MAX_REPORTED_ERRORS} more")
    return "; ".join(complaints)


def _format_check_error(path: tuple[int | str, ...], error: Exception) -> str:
    """Say what a check of ours found, which names the key itself if it is one further inside."""
    where = ".".join(str(part) for part in path)
    joint = "." if isinstance(error, ParameterError) else ": "
    return f"{where}{joint}{error}" if where else str(error)


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
