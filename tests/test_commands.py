"""Properties of all commands: a summary, a valid example, and shell completion."""

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
    """Yield all commands, with those of groups."""
    for name in COMMAND_SPECS:
        command = import_command(name)
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {each}", inner[each]) for each in inner)


ALL_COMMANDS = [pytest.param(name, command, id=name) for name, command in commands()]


@pytest.mark.parametrize(("name", "command"), ALL_COMMANDS)
def test_help_ends_with_a_valid_example(name: str, command: Any) -> None:
    start, *examples = (command.epilog or "").split("\n\n")
    assert start == "For example:"
    assert examples
    for text in examples:
        words = shlex.split(text)
        begin = ["privet", *name.split()]
        assert words[: len(begin)] == begin
        command.make_context(name, words[len(begin) :])  # raises an error for unknown options


@pytest.mark.parametrize(("name", "command"), ALL_COMMANDS)
def test_help_contains_no_markup(name: str, command: Any) -> None:
    """Help contains no markup: text in square brackets would not be shown."""
    texts = [command.help, command.short_help, command.epilog]
    for param in command.params:
        texts += [getattr(param, "help", None), getattr(param, "show_default", None)]
    for text in texts:
        if isinstance(text, str):
            assert Text.from_markup(text).plain == text


def test_unknown_option_in_an_example_is_detected() -> None:
    with pytest.raises(Exception, match="No such option: --party"):
        import_command("inspect").make_context("inspect", ["--party", "party.toml", "model"])


@pytest.mark.parametrize("name", COMMAND_SPECS)
def test_summaries_match_the_docstrings(name: str) -> None:
    command = getattr(import_module(f"privet.cli.{COMMAND_SPECS[name].module}"), name)
    help_text = command.info.help if isinstance(command, typer.Typer) else command.__doc__
    assert " ".join(str(help_text).split("\n\n")[0].split()) == COMMAND_SPECS[name].summary


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
    """Imports would delay every completion by half a second."""
    code = (
        "import sys\nfrom privet.cli.app import app\n"
        "try:\n    app(['--help'], prog_name='privet')\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    assert "train" in process.stdout
    assert process.stdout.splitlines()[-1] == "[]"


def get_completions(shell: str, words: str) -> list[str]:
    """Return the completions that a shell would offer for the last word."""
    environment = {
        "_PRIVET_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    process = subprocess.run(  # noqa: S603
        [BIN / "privet"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=True,
    )
    return [line.partition("\t")[0] for line in process.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("privet sim", ["simulate"]),
        ("privet audit ", ["verify", "show"]),
        ("privet train --log-format ", ["text", "json"]),
        ("privet simulate --protocol pl", ["plain"]),
        ("privet demo --data c", ["california", "credit"]),
        ("privet train --jo", ["--job"]),
        ("privet train --job ", []),  # no completions: the shell offers files
    ],
)
def test_words_are_completed(words: str, offered: list[str]) -> None:
    assert get_completions("bash", words) == offered


def test_completion_for_zsh_and_fish() -> None:
    assert get_completions("fish", "privet pre") == ["predict"]
    (line,) = get_completions("zsh", "privet pre")
    assert line.startswith('_arguments \'*: :(("predict":"Predict a batch')
    assert get_completions("zsh", "privet train --job ") == ["_files"]


SHELL_SCRIPTS = {
    "bash": 'eval "$(_PRIVET_COMPLETE=source_bash privet)"; COMP_WORDS=(privet exp); COMP_CWORD=1; '
    '_privet_completion privet; echo "${COMPREPLY[@]}"',
    "zsh": 'autoload -U compinit; compinit -u -D; eval "$(_PRIVET_COMPLETE=source_zsh privet)"; '
    '_arguments() { echo "$@" }; words=(privet exp); CURRENT=2; _privet_completion',
    "fish": "_PRIVET_COMPLETE=source_fish privet | source; complete -C 'privet exp'",
}


@pytest.mark.parametrize("shell", SHELL_SCRIPTS)
def test_shell_runs_the_completion_script(tmp_path: Path, shell: str) -> None:
    shell_path = shutil.which(shell)
    if shell_path is None:
        pytest.skip(f"{shell} is not installed: its completion is NOT tested as a whole")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    process = subprocess.run(  # noqa: S603
        [shell_path, "-c", SHELL_SCRIPTS[shell]],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert "export" in process.stdout, process.stderr


def test_the_app_offers_to_install_completion() -> None:
    names = {name for param in typer.main.get_command(app).params for name in param.opts}
    assert {"--install-completion", "--show-completion"} <= names
