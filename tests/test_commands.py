"""What all commands have in common: a purpose, an example that can be typed, and completion."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from privet.cli.app import COMMAND_SPECS, app, import_command

HEAVY = ("numpy", "sklearn", "scipy", "pyarrow", "cryptography")
BIN = Path(sys.executable).parent


def commands() -> Iterator[tuple[str, Any]]:
    """Walk all commands, and those of groups."""
    for name in COMMAND_SPECS:
        command = import_command(name)
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {each}", inner[each]) for each in inner)


EVERY = [pytest.param(name, command, id=name) for name, command in commands()]


@pytest.mark.parametrize(("name", "command"), EVERY)
def test_help_ends_with_an_example_that_can_be_typed(name: str, command: Any) -> None:
    start, *examples = (command.epilog or "").split("\n\n")
    assert start == "For example:"
    assert examples
    for text in examples:
        words = shlex.split(text)
        begin = ["privet", *name.split()]
        assert words[: len(begin)] == begin
        command.make_context(name, words[len(begin) :])  # which refuses what it does not know


@pytest.mark.parametrize(("name", "command"), EVERY)
def test_help_shows_what_it_says(name: str, command: Any) -> None:
    """Nothing in it is taken for markup: in square brackets it would not be shown."""
    texts = [command.help, command.short_help, command.epilog]
    for param in command.params:
        texts += [getattr(param, "help", None), getattr(param, "show_default", None)]
    for text in texts:
        if isinstance(text, str):
            assert Text.from_markup(text).plain == text


def test_an_example_with_an_option_that_is_gone_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option: --party"):
        import_command("inspect").make_context("inspect", ["--party", "party.toml", "model"])


@pytest.mark.parametrize("name", COMMAND_SPECS)
def test_purposes_are_those_of_the_commands(name: str) -> None:
    found = getattr(import_module(f"privet.cli.{COMMAND_SPECS[name].module}"), name)
    said = found.info.help if isinstance(found, typer.Typer) else found.__doc__
    assert " ".join(str(said).split("\n\n")[0].split()) == COMMAND_SPECS[name].summary


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"_PRIVET_COMPLETE": "complete_bash", "COMP_WORDS": "privet tr", "COMP_CWORD": "1"},
        {"_PRIVET_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "privet tr"},
    ],
    ids=["help", "bash", "zsh"],
)
def test_listing_commands_imports_nothing_heavy(environment: dict[str, str]) -> None:
    """Half a second more is felt at every press of the tab key."""
    code = (
        "import sys\nfrom privet.cli.app import app\n"
        "try:\n    app(['--help'], prog_name='privet')\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    assert "train" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def completed(shell: str, words: str) -> list[str]:
    """Return what a shell would offer for the last word."""
    environment = {
        "_PRIVET_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(  # noqa: S603
        [BIN / "privet"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=True,
    )
    return [line.partition("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("privet sim", ["simulate"]),
        ("privet audit ", ["verify", "show"]),
        ("privet train --log-format ", ["text", "json"]),
        ("privet simulate --protocol pl", ["plain"]),
        ("privet demo --data c", ["california", "credit"]),
        ("privet train --jo", ["--job"]),
        ("privet train --job ", []),  # nothing of ours: the shell offers files
    ],
)
def test_words_are_completed(words: str, offered: list[str]) -> None:
    assert completed("bash", words) == offered


def test_completion_for_zsh_and_fish() -> None:
    assert completed("fish", "privet pre") == ["predict"]
    (line,) = completed("zsh", "privet pre")
    assert line.startswith('_arguments \'*: :(("predict":"Predict a batch')
    assert completed("zsh", "privet train --job ") == ["_files"]


IN_A_SHELL = {
    "bash": 'eval "$(_PRIVET_COMPLETE=source_bash privet)"; COMP_WORDS=(privet exp); COMP_CWORD=1; '
    '_privet_completion privet; echo "${COMPREPLY[@]}"',
    "zsh": 'autoload -U compinit; compinit -u -D; eval "$(_PRIVET_COMPLETE=source_zsh privet)"; '
    '_arguments() { echo "$@" }; words=(privet exp); CURRENT=2; _privet_completion',
    "fish": "_PRIVET_COMPLETE=source_fish privet | source; complete -C 'privet exp'",
}


@pytest.mark.parametrize("shell", IN_A_SHELL)
def test_a_shell_takes_its_script(tmp_path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed: its completion is NOT tested as a whole")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(  # noqa: S603
        [found, "-c", IN_A_SHELL[shell]],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert "export" in done.stdout, done.stderr


def test_the_app_offers_to_install_completion() -> None:
    names = {name for param in typer.main.get_command(app).params for name in param.opts}
    assert {"--install-completion", "--show-completion"} <= names
