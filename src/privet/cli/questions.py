"""Questions to whoever sits at the terminal, unless options answer them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import typer

from privet.errors import InputError, ParameterError, UnavailableError

_Answer = TypeVar("_Answer")


class Questions:
    """Asks for what was not given; where nobody can be asked, that is an error."""

    def __init__(self) -> None:
        self.can_ask = all(
            stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)
        )

    def require(self, given: Mapping[str, object]) -> None:
        """Raise ParameterError if nobody can be asked for what has no default, naming all of it."""
        missing = [option for option, value in given.items() if value is None]
        if missing and not self.can_ask:
            raise ParameterError(
                f"there is no terminal to ask on, so give what is missing: {', '.join(missing)}"
            )

    def answer(
        self,
        given: str | None,
        question: str,
        check: Callable[[str], _Answer],
        default: str | None = None,
    ) -> _Answer:
        """Return what was given, or answered, or else the default, as a check makes it.

        The check raises an error of ours for what cannot be; then somebody at a terminal is told
        why, and asked again.
        """
        if given is not None:
            return check(given)
        if not self.can_ask:
            if default is None:
                raise ParameterError(f"there is no terminal to ask on: {question}?")
            return check(default)
        while True:
            shown = bool(default)
            try:
                text = typer.prompt(question, default=default, show_default=shown, err=True)
            except typer.Abort:  # by Ctrl-C, or at the end of what is typed
                raise KeyboardInterrupt from None
            try:
                return check(str(text).strip())
            except (InputError, UnavailableError) as error:
                typer.echo(f"  {error}", err=True)

    def show(self, text: str) -> None:
        """Say something between two questions, if there are any."""
        if self.can_ask:
            typer.echo(text, err=True)


def comma_separated(text: str) -> list[str]:
    """Return the parts of a list that somebody typed."""
    return [part.strip() for part in text.split(",") if part.strip()]


def one_of(what: str, names: list[str]) -> Callable[[str], str]:
    """Return a check that something is one of some names."""

    def check(text: str) -> str:
        if text not in names:
            raise ParameterError(f"{what}: {text!r} is none of {', '.join(names)}")
        return text

    return check
