"""The page on commands, from the command line, and the options of each command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manual.markdown import table
from privet.cli.app import COMMAND_SPECS, import_command


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Commands\n"
    yield (
        "As `privet COMMAND --help` says it. A command that cannot do its work says why on stderr, "
        "and ends with another [exit code](exit-codes.md) than 0.\n"
    )
    for name, command in list_commands().items():
        yield f"## privet {name}\n"
        yield from (_joined(part) + "\n" for part in command.help.split("\n\n"))
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            yield from table(("option", "by default", ""), rows)


def list_commands() -> dict[str, Any]:
    """Return all commands, with subcommands, by the words after `privet`."""
    found: dict[str, Any] = {}
    for name in COMMAND_SPECS:
        command = import_command(name)
        inner = getattr(command, "commands", None)
        found |= (
            {name: command} if inner is None else {f"{name} {each}": inner[each] for each in inner}
        )
    return found


def list_options(command: Any) -> set[str]:
    """Return the options of a command, as written on the command line."""
    names = {each for p in command.params for each in (*p.opts, *p.secondary_opts)}
    return {each for each in names if each.startswith("-")} | {"--help"}


def _row(parameter: Any) -> tuple[str, str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    is_option = names[0].startswith("-")
    name = ", ".join(f"`{each}`" for each in names) if is_option else f"`{parameter.name.upper()}`"
    return name, _default(parameter), _joined(getattr(parameter, "help", ""))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    shown = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if shown is None or shown is False or shown in ((), []):
        return ""
    return f"`{shown}`"


def _joined(words: str | None) -> str:
    return " ".join((words or "").split())
