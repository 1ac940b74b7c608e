"""Prompts for the settings of a participant, for values that no option gives."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from privet.config.draft import PARTY_FILE
from privet.config.members import parse_address
from privet.config.party import PartyFile
from privet.config.table import DataDescription, likely_id, likely_label
from privet.data.frame import Frame, listing
from privet.data.reader import column_names, read_table
from privet.data.sources.base import is_address
from privet.errors import DataError, InputError, ParameterError, UnavailableError

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


_ADDRESS = "HOST:PORT where the others reach you, as bank.example:7400"
Name = Annotated[str | None, typer.Option(help="Your name in the job.", show_default=False)]
Address = Annotated[str | None, typer.Option(help=f"{_ADDRESS}.", show_default=False)]
DealerAddress = Annotated[
    str | None,
    typer.Option(help="Of the dealer that you play, if you do.", show_default="the next port"),
]
Folder = Annotated[
    Path | None,
    typer.Option(help="Where your keys, party.toml and job.toml go.", show_default="this one"),
]
TableFile = Annotated[
    str | None,
    typer.Option(
        "--table", help="Your table: CSV, Parquet, Arrow, a folder of them.", show_default=False
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="The column that says which sample a row is; several, if the job has parts of ids.",
        show_default="id, or the only one like it",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(help="The label's column, if you have it.", show_default="label, or the like"),
]


def ask_address(
    questions: Questions,
    given: str | None,
    taken: Collection[str],
    whose: str = "Your address",
    default: str | None = None,
) -> str:
    """Return where somebody is reached, which must be where nobody else is."""

    def check(text: str) -> str:
        try:
            parse_address(text)
        except ParameterError as error:
            raise ParameterError(f"{error}, as bank.example:7400") from None
        if text in taken:
            raise ParameterError(f"address: {text} is somebody else's in the job")
        return text

    host = socket.getfqdn()
    if default is None and questions.can_ask and not host.startswith("localhost"):
        default = f"{host}:7400"
    return questions.answer(given, f"{whose} for the others, HOST:PORT", check, default)


def next_port(address: str) -> str | None:
    """Return the same host with the port after this one."""
    host, port = parse_address(address)
    return f"{host}:{port + 1}" if port < 65535 else None


def ask_played(
    questions: Questions, given: str | None, dealer: str, ours: str, taken: Collection[str]
) -> str:
    """Return the address of the dealer that we play, which is beside our own."""
    whose = f"The address of {dealer}, the dealer that you play,"
    return ask_address(questions, given, [*taken, ours], whose, next_port(ours))


def refuse_described(own: PartyFile, name: str | None, **options: str | None) -> None:
    """Raise ParameterError if options say what party.toml, which is there already, says as well."""
    said = [key for key, value in options.items() if value is not None]
    if said:
        raise ParameterError(
            f"{said[0]}: {PARTY_FILE} is there already, and describes your table: change it there, "
            f"or leave --{said[0]} out"
        )
    if name not in (None, own.name):
        raise ParameterError(
            f"name: {PARTY_FILE} is there already, and says that you are {own.name}: choose "
            "another --folder"
        )


class TableQuestions:
    """A table, asked for step by step, and looked at after each of them."""

    def __init__(self, questions: Questions, path: str | None, known: dict[str, Any]) -> None:
        self.questions = questions
        self.known = known
        """Keys of `[data]` that options gave."""
        self.path, self.names = questions.answer(
            path, "Your table (CSV, Parquet, Arrow)", self._columns
        )
        questions.show(f"  {len(self.names)} columns: {listing(self.names)}")

    def _columns(self, path: str) -> tuple[str, list[str]]:
        # Home is what the shell would make of it.
        path = path if is_address(path) else str(Path(path).expanduser())
        return path, column_names(DataDescription(path=path, **self.known))

    def _column(self, text: str) -> str:
        if text not in self.names:
            raise DataError(
                f"{self.path}: there is no column {text!r}; there are {listing(self.names)}"
            )
        return text

    def _some(self, text: str) -> list[str]:
        found = [self._column(name) for name in comma_separated(text)]
        if not found:
            raise ParameterError("drop: name a column, or several with commas; or end with Ctrl-C")
        return found

    def id(self, given: str | None, parts: int = 1) -> str | list[str]:
        """Return the column of ids, or the columns that make an id together."""
        default = likely_id(self.names) if parts == 1 else None
        if given is None and default is None and not self.questions.can_ask:
            raise ParameterError(
                f"{self.path}: say which column has the ids with --id: {listing(self.names)}"
            )

        def check(text: str) -> str | list[str]:
            found = [self._column(name) for name in ([text] if parts == 1 else text.split(","))]
            if len(found) != parts:
                raise ParameterError(f"id: {text!r} is not {parts} columns, one for each part")
            return found[0] if parts == 1 else found

        what = "The column of ids" if parts == 1 else f"The {parts} columns of an id, with commas"
        return self.questions.answer(given, what, check, default)

    def label(self, given: str | None, *, ours: bool) -> str | None:
        """Return the label's column, or None if somebody else has it, which `ours` rules out."""
        default = likely_label(self.names)
        if given is None and default is None and not self.questions.can_ask:
            raise ParameterError(
                f"{self.path}: say which column is the label with --label: {listing(self.names)}"
                + ("" if ours else "; or who else has the label, with --active")
            )
        if ours:
            return self.questions.answer(given, "The label's column", self._column, default)
        return self.questions.answer(
            given,
            "The label's column (none, if another participant has the label)",
            lambda text: None if text == "none" not in self.names else self._column(text),
            default or "none",
        )

    def read(self, **described: Any) -> tuple[DataDescription, Frame]:
        """Return the table, described, and its rows; what cannot be used may be left out."""
        known = {**self.known, **{key: value for key, value in described.items() if value}}
        while True:
            data = DataDescription(path=self.path, **known)
            try:
                frame = read_table(data)
            except DataError as error:
                if not self.questions.can_ask:
                    raise
                self.questions.show(f"  {error}")
                dropped = self.questions.answer(None, "Columns to leave out", self._some)
                known["drop"] = [*known.get("drop", []), *dropped]
                continue
            self.questions.show(
                f"  {frame.n_samples:,} rows, {len(frame.names)} columns"
                + (" and the label" if frame.label is not None else "")
            )
            for warning in frame.warnings:
                typer.echo(f"  {warning}", err=True)
            return data, frame
