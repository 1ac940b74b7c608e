"""The questions of `privet init` and `privet join` at a terminal, answered and answered wrongly."""

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
from tests.newcomers import ENVIRONMENT, start_of, write_tables


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write_tables(tmp_path / "at"))
    return tmp_path / "at"


class Terminal:
    """A command at a terminal of its own, and a person who types."""

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self.screen, terminal = pty.openpty()
        # Ctrl-C reaches those whose controlling terminal it is typed at.
        code = (
            "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from privet.cli.app import main; main()"
        )
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**ENVIRONMENT, "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(terminal)

    def _read(self) -> bool:
        """Read more of what is shown; return whether there was any."""
        ready, _, _ = select.select([self.screen], [], [], 20)
        read = b""
        with suppress(OSError):  # which Linux raises when the other side has ended
            read = os.read(self.screen, 4096) if ready else b""
        self.shown += read.decode().replace("\r\n", "\n")
        return bool(read)

    def wait_for(self, text: str) -> None:
        """Read until some text is shown; what comes before it is taken as read."""
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
        """Return the exit code, once it has ended."""
        while self._read():
            pass
        return self.process.wait(timeout=20)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.screen)
        self.process.kill()
        self.process.wait()


def test_questions_at_a_terminal(folders: Path) -> None:
    """Wrong answers are explained and asked again; return takes what is proposed."""
    with Terminal("init") as at:
        at.answer("1. Folder", "shop")
        at.answer("Your name", "the shop")
        at.answer("name: 'the shop' is none", "shop")
        at.answer("Your address", "127.0.0.1:x")
        at.answer("'127.0.0.1:x' is not HOST:PORT", "127.0.0.1:7403")
        at.answer("The other participants", "bank,shop")
        at.answer("shop is taken", "bank, telecom")
        at.answer("Who deals", "")
        at.answer("Your table", "nowhere.csv")
        at.answer("nowhere.csv", "shop/train.csv")
        at.wait_for("12 columns: 'id', ")
        at.answer("The column of ids [id]", "")
        at.answer("The label's column", "")
        at.wait_for("455 rows, 10 columns and the label")
        at.answer("A name for the model [model]", "diagnosis")
        at.answer("What is learned: regression or classification [classification]", "")
        at.answer("Who gets predictions [shop]", "bank")
        at.answer("Do all have the same rows", "yes")
        at.wait_for("What next")
        assert at.end() == 0
    job = JobDraft.read("shop/job.toml").make_placeholder_job()
    assert (job.name, job.recipient, job.align) == ("diagnosis", "bank", False)
    with Terminal("join", "shop/job.toml", "--folder", "bank") as at:
        at.answer("Who are you: bank, telecom and dealer", "shopkeeper")
        at.answer("'shopkeeper' is none of", "bank")
        at.answer("Your address", "127.0.0.1:7403")
        at.answer("is somebody else's", "127.0.0.1:7401")
        at.answer("Your table", "bank/train.csv")
        at.answer("The column of ids [id]", "")
        at.wait_for("What next: send bank/job.toml back")
        assert at.end() == 0
    assert JobDraft.read("bank/job.toml").open_names == ["telecom", "dealer"]


def test_columns_that_cannot_be_used_are_left_out(folders: Path) -> None:
    rows = "\n".join(f"{i},{i * i % 7},person {i},{i % 2}" for i in range(40))
    (folders / "new").mkdir()
    (folders / "new" / "t.csv").write_text(f"id,a,name,label\n{rows}\n")
    with Terminal(*start_of(folder="new", table="new/t.csv", dealers="dealer"), "--align") as at:
        at.answer("The column of ids", "")
        at.answer("The label's column", "")
        at.wait_for("column 'name' has another category in each of 40 rows")
        at.answer("Columns to leave out", "nmae")
        at.answer("there is no column 'nmae'", "name")
        at.wait_for("40 rows, 1 columns and the label")
        for question in ("A name for the model", "What is learned", "Who gets predictions"):
            at.answer(question, "")
        at.wait_for("What next")
        assert at.end() == 0
    assert PartyConfig.load("new/party.toml").data.drop == ["name"]


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_giving_up_at_a_question(folders: Path, keys: str) -> None:
    before = sorted(folders.rglob("*"))
    with Terminal("init", "--folder", "shop", "--name", "shop") as at:
        at.wait_for("Your address")
        at.wait_for(": ")
        for _ in range(10):  # one that comes just before Python waits for a key is lost
            at.type(keys)
            with suppress(subprocess.TimeoutExpired):
                at.process.wait(timeout=1)
                break
        assert at.end() == 130
    assert "Traceback" not in at.shown
    assert sorted(folders.rglob("*")) == before
