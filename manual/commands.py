"""The page on commands, from the command line itself; and which options each of them takes."""

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
    for name, command in known().items():
        yield f"## privet {name}\n"
        yield from (_joined(part) + "\n" for part in command.help.split("\n\n"))
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            yield from table(("option", "by default", ""), rows)


def known() -> dict[str, Any]:
    """Return all commands, those within others among them, by what is typed after `privet`."""
    found: dict[str, Any] = {}
    for name in COMMAND_SPECS:
        command = import_command(name)
        inner = getattr(command, "commands", None)
        found |= (
            {name: command} if inner is None else {f"{name} {each}": inner[each] for each in inner}
        )
    return found


def options(command: Any) -> set[str]:
    """Return the options that a command takes, as they are typed."""
    typed = {each for p in command.params for each in (*p.opts, *p.secondary_opts)}
    return {each for each in typed if each.startswith("-")} | {"--help"}


def _row(parameter: Any) -> tuple[str, str, str]:
    typed = [*parameter.opts, *parameter.secondary_opts]
    named = typed[0].startswith("-")
    name = ", ".join(f"`{each}`" for each in typed) if named else f"`{parameter.name.upper()}`"
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
