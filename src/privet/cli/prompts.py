"""Prompts for the settings of a participant that no option sets."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from privet.config.draft import PARTY_FILE_NAME
from privet.config.members import parse_address
from privet.config.party import PartyConfig
from privet.config.table import TableSpec, guess_id_column, guess_label_column
from privet.data.frame import Frame, format_names
from privet.data.reader import read_column_names, read_table
from privet.data.sources.base import is_url
from privet.errors import DataError, InputError, ParameterError, UnavailableError

_Answer = TypeVar("_Answer")


class Prompter:
    """Prompts on the terminal; without a terminal, a missing value is an error."""

    def __init__(self) -> None:
        self.is_interactive = all(
            stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)
        )

    def check_answerable(self, values: Mapping[str, object]) -> None:
        """Without a terminal, raise ParameterError that lists all missing options."""
        missing = [option for option, value in values.items() if value is None]
        if missing and not self.is_interactive:
            raise ParameterError(
                f"there is no terminal to ask on, so give what is missing: {', '.join(missing)}"
            )

    def ask(
        self,
        value: str | None,
        question: str,
        parse: Callable[[str], _Answer],
        default: str | None = None,
    ) -> _Answer:
        """Return the parsed value of an option, of an answer, or of the default.

        If `parse` raises InputError or UnavailableError for an answer, print it and prompt again.
        """
        if value is not None:
            return parse(value)
        if not self.is_interactive:
            if default is None:
                raise ParameterError(f"there is no terminal to ask on: {question}?")
            return parse(default)
        while True:
            shown = bool(default)
            try:
                text = typer.prompt(question, default=default, show_default=shown, err=True)
            except typer.Abort:  # by Ctrl-C, or at the end of input
                raise KeyboardInterrupt from None
            try:
                return parse(str(text).strip())
            except (InputError, UnavailableError) as error:
                typer.echo(f"  {error}", err=True)

    def print_note(self, text: str) -> None:
        """Print a note between two prompts, if there is a terminal."""
        if self.is_interactive:
            typer.echo(text, err=True)


def split_list(text: str) -> list[str]:
    """Split a list with commas; drop empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


def make_choice_parser(option: str, choices: list[str]) -> Callable[[str], str]:
    """Return a parser that accepts only the given choices."""

    def check(text: str) -> str:
        if text not in choices:
            raise ParameterError(f"{option}: {text!r} is none of {', '.join(choices)}")
        return text

    return check


_ADDRESS = "HOST:PORT where the others reach you, as bank.example:7400"
NameOption = Annotated[str | None, typer.Option(help="Your name in the job.", show_default=False)]
AddressOption = Annotated[str | None, typer.Option(help=f"{_ADDRESS}.", show_default=False)]
DealerAddressOption = Annotated[
    str | None,
    typer.Option(help="Of the dealer that you play, if you do.", show_default="the next port"),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(help="Where your keys, party.toml and job.toml go.", show_default="this one"),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table", help="Your table: CSV, Parquet, Arrow, a folder of them.", show_default=False
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="The column that says which sample a row is; several, if the job has parts of ids.",
        show_default="id, or the only one like it",
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(help="The label's column, if you have it.", show_default="label, or the like"),
]


def ask_address(
    prompter: Prompter,
    value: str | None,
    used_addresses: Collection[str],
    subject: str = "Your address",
    default: str | None = None,
) -> str:
    """Return a valid address that no other member uses."""

    def check(text: str) -> str:
        try:
            parse_address(text)
        except ParameterError as error:
            raise ParameterError(f"{error}, as bank.example:7400") from None
        if text in used_addresses:
            raise ParameterError(f"address: {text} is somebody else's in the job")
        return text

    host = socket.getfqdn()
    if default is None and prompter.is_interactive and not host.startswith("localhost"):
        default = f"{host}:7400"
    return prompter.ask(value, f"{subject} for the others, HOST:PORT", check, default)


def increment_port(address: str) -> str | None:
    """Return the same host with the next port; None after the last port."""
    host, port = parse_address(address)
    return f"{host}:{port + 1}" if port < 65535 else None


def ask_dealer_address(
    prompter: Prompter,
    value: str | None,
    dealer: str,
    local_address: str,
    used_addresses: Collection[str],
) -> str:
    """Return the address of the dealer that this participant plays; by default, the next port."""
    subject = f"The address of {dealer}, the dealer that you play,"
    return ask_address(
        prompter, value, [*used_addresses, local_address], subject, increment_port(local_address)
    )


def check_table_not_described(
    party_config: PartyConfig, name: str | None, **options: str | None
) -> None:
    """Raise ParameterError if options set what an existing party.toml sets already."""
    conflicts = [key for key, value in options.items() if value is not None]
    if conflicts:
        raise ParameterError(
            f"{conflicts[0]}: {PARTY_FILE_NAME} is there already, and describes your table: change "
            f"it there, or leave --{conflicts[0]} out"
        )
    if name not in (None, party_config.name):
        raise ParameterError(
            f"name: {PARTY_FILE_NAME} is there already, and says that you are {party_config.name}: "
            "choose another --folder"
        )


class TablePrompts:
    """Prompts for an input table, which read the file after each step."""

    def __init__(self, prompter: Prompter, path: str | None, preset_keys: dict[str, Any]) -> None:
        self.prompter = prompter
        self.preset_keys = preset_keys
        """Keys of `[data]` that options set."""
        self.path, self.column_names = prompter.ask(
            path, "Your table (CSV, Parquet, Arrow)", self._read_columns
        )
        prompter.print_note(
            f"  {len(self.column_names)} columns: {format_names(self.column_names)}"
        )

    def _read_columns(self, path: str) -> tuple[str, list[str]]:
        # Expand ~ as the shell would.
        path = path if is_url(path) else str(Path(path).expanduser())
        return path, read_column_names(TableSpec(path=path, **self.preset_keys))

    def _check_column(self, text: str) -> str:
        if text not in self.column_names:
            raise DataError(
                f"{self.path}: there is no column {text!r}; there are "
                f"{format_names(self.column_names)}"
            )
        return text

    def _check_columns(self, text: str) -> list[str]:
        found = [self._check_column(name) for name in split_list(text)]
        if not found:
            raise ParameterError("drop: name a column, or several with commas; or end with Ctrl-C")
        return found

    def ask_id_columns(self, value: str | None, n_parts: int = 1) -> str | list[str]:
        """Return the id column, or the columns that form an id together."""
        default = guess_id_column(self.column_names) if n_parts == 1 else None
        if value is None and default is None and not self.prompter.is_interactive:
            raise ParameterError(
                f"{self.path}: say which column has the ids with --id: "
                f"{format_names(self.column_names)}"
            )

        def check(text: str) -> str | list[str]:
            found = [
                self._check_column(name) for name in ([text] if n_parts == 1 else text.split(","))
            ]
            if len(found) != n_parts:
                raise ParameterError(f"id: {text!r} is not {n_parts} columns, one for each part")
            return found[0] if n_parts == 1 else found

        question = (
            "The column of ids" if n_parts == 1 else f"The {n_parts} columns of an id, with commas"
        )
        return self.prompter.ask(value, question, check, default)

    def ask_label_column(self, value: str | None, *, is_label_holder: bool) -> str | None:
        """Return the label column; None only if this participant need not be the label holder."""
        default = guess_label_column(self.column_names)
        if value is None and default is None and not self.prompter.is_interactive:
            raise ParameterError(
                f"{self.path}: say which column is the label with --label: "
                f"{format_names(self.column_names)}"
                + ("" if is_label_holder else "; or who else has the label, with --active")
            )
        if is_label_holder:
            return self.prompter.ask(value, "The label's column", self._check_column, default)
        return self.prompter.ask(
            value,
            "The label's column (none, if another participant has the label)",
            lambda text: None
            if text == "none" not in self.column_names
            else self._check_column(text),
            default or "none",
        )

    def read_table(self, **options: Any) -> tuple[TableSpec, Frame]:
        """Return the table specification and its rows; prompt for unusable columns to drop."""
        known = {**self.preset_keys, **{key: value for key, value in options.items() if value}}
        while True:
            data = TableSpec(path=self.path, **known)
            try:
                frame = read_table(data)
            except DataError as error:
                if not self.prompter.is_interactive:
                    raise
                self.prompter.print_note(f"  {error}")
                dropped = self.prompter.ask(None, "Columns to leave out", self._check_columns)
                known["drop"] = [*known.get("drop", []), *dropped]
                continue
            self.prompter.print_note(
                f"  {frame.n_samples:,} rows, {len(frame.names)} columns"
                + (" and the label" if frame.label is not None else "")
            )
            for warning in frame.warnings:
                typer.echo(f"  {warning}", err=True)
            return data, frame
