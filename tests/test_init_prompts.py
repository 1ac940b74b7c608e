"""The prompts of `privet init` and `privet join` at a terminal, with valid and invalid answers."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from privet.config.draft import JobDraft
from privet.config.party import PartyConfig
from tests.init_inputs import ENVIRONMENT, make_init_arguments, write_tables


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write_tables(tmp_path / "at"))
    return tmp_path / "at"


class Terminal:
    """A command at a pseudo-terminal, with simulated input."""

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self.screen, terminal_fd = pty.openpty()
        # Ctrl-C reaches only processes whose controlling terminal this is.
        code = (
            "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from privet.cli.app import main; main()"
        )
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code, *arguments],
            stdin=terminal_fd,
            stdout=terminal_fd,
            stderr=terminal_fd,
            env={**ENVIRONMENT, "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(terminal_fd)

    def _read(self) -> bool:
        """Read more output; return whether there was any."""
        ready, _, _ = select.select([self.screen], [], [], 20)
        read = b""
        with suppress(OSError):  # Linux raises it when the process has ended
            read = os.read(self.screen, 4096) if ready else b""
        self.shown += read.decode().replace("\r\n", "\n")
        return bool(read)

    def wait_for(self, text: str) -> None:
        """Read until a text is shown; discard the output up to it."""
        while text not in self.shown:
            assert self._read(), f"{text!r} is not shown: {self.shown}"
        self.shown = self.shown.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        self.wait_for(": ")
        self.type(f"{text}\n")

    def end(self) -> int:
        """Read to the end; return the exit code."""
        while self._read():
            pass
        return self.process.wait(timeout=20)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.screen)
        self.process.kill()
        self.process.wait()


def test_prompts_at_a_terminal(folders: Path) -> None:
    """Invalid answers are explained and prompted again; an empty answer takes the default."""
    with Terminal("init") as terminal:
        terminal.answer("1. Folder", "shop")
        terminal.answer("Your name", "the shop")
        terminal.answer("name: 'the shop' is none", "shop")
        terminal.answer("Your address", "127.0.0.1:x")
        terminal.answer("'127.0.0.1:x' is not HOST:PORT", "127.0.0.1:7403")
        terminal.answer("The other participants", "bank,shop")
        terminal.answer("shop is taken", "bank, telecom")
        terminal.answer("Who deals", "")
        terminal.answer("Your table", "nowhere.csv")
        terminal.answer("nowhere.csv", "shop/train.csv")
        terminal.wait_for("12 columns: 'id', ")
        terminal.answer("The column of ids [id]", "")
        terminal.answer("The label's column", "")
        terminal.wait_for("455 rows, 10 columns and the label")
        terminal.answer("A name for the model [model]", "diagnosis")
        terminal.answer("What is learned: regression or classification [classification]", "")
        terminal.answer("Who gets predictions [shop]", "bank")
        terminal.answer("Do all have the same rows", "yes")
        terminal.wait_for("What next")
        assert terminal.end() == 0
    job = JobDraft.read("shop/job.toml").make_placeholder_job()
    assert (job.name, job.recipient, job.align) == ("diagnosis", "bank", False)
    with Terminal("join", "shop/job.toml", "--folder", "bank") as terminal:
        terminal.answer("Who are you: bank, telecom and dealer", "shopkeeper")
        terminal.answer("'shopkeeper' is none of", "bank")
        terminal.answer("Your address", "127.0.0.1:7403")
        terminal.answer("is somebody else's", "127.0.0.1:7401")
        terminal.answer("Your table", "bank/train.csv")
        terminal.answer("The column of ids [id]", "")
        terminal.wait_for("What next: send bank/job.toml back")
        assert terminal.end() == 0
    assert JobDraft.read("bank/job.toml").open_names == ["telecom", "dealer"]


def test_unusable_columns_are_dropped(folders: Path) -> None:
    rows = "\n".join(f"{i},{i * i % 7},person {i},{i % 2}" for i in range(40))
    (folders / "new").mkdir()
    (folders / "new" / "t.csv").write_text(f"id,a,name,label\n{rows}\n")
    with Terminal(
        *make_init_arguments(folder="new", table="new/t.csv", dealers="dealer"), "--align"
    ) as terminal:
        terminal.answer("The column of ids", "")
        terminal.answer("The label's column", "")
        terminal.wait_for("column 'name' has another category in each of 40 rows")
        terminal.answer("Columns to leave out", "nmae")
        terminal.answer("there is no column 'nmae'", "name")
        terminal.wait_for("40 rows, 1 columns and the label")
        for question in ("A name for the model", "What is learned", "Who gets predictions"):
            terminal.answer(question, "")
        terminal.wait_for("What next")
        assert terminal.end() == 0
    assert PartyConfig.load("new/party.toml").data.drop == ["name"]


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_interrupt_at_a_prompt(folders: Path, keys: str) -> None:
    before = sorted(folders.rglob("*"))
    with Terminal("init", "--folder", "shop", "--name", "shop") as terminal:
        terminal.wait_for("Your address")
        terminal.wait_for(": ")
        for _ in range(10):  # a key just before Python waits for input is lost
            terminal.type(keys)
            with suppress(subprocess.TimeoutExpired):
                terminal.process.wait(timeout=1)
                break
        assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert sorted(folders.rglob("*")) == before
