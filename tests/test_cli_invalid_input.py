"""Invalid input for every argument of every command: an error message without a traceback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from privet import save_model
from privet.cli import app
from privet.cli.app import COMMAND_SPECS
from privet.storage.journal import AuditLog
from tests.federation import harness

ARGUMENTS = {
    "init": "--name x --address 127.0.0.1:7000 --others y,z --table shop/train.csv --folder new "
    "--id id --label label --task classification --recipient x --job-name m --dealers dealer",
    "join": "job.toml --folder bank --name bank --address 127.0.0.1:7000",
    "keys": "someone --folder keys",
    "check": "--job job.toml --party bank/party.toml",
    "dealer": "--job job.toml --key dealer/dealer.key --certificate dealer/dealer.crt "
    "--listen 127.0.0.1:0 --audit audit.log --wait 0.01",
    "align": "--party bank/party.toml --job job.toml --out ids.csv --report report.json "
    "--wait 0.01",
    "shard": "--party bank/party.toml --job job.toml --out by-shard --shards 2",
    "train": "--party bank/party.toml --job job.toml --report report.json --wait 0.01",
    "forget": "--party bank/party.toml",
    "predict": "--party bank/party.toml --model bank/models/rehearsal.part --data bank/new.csv "
    "--out predictions.csv --job job.toml --report report.json --wait 0.01",
    "serve": "--party bank/party.toml --model bank/models/rehearsal.part --data bank/new.csv "
    "--job job.toml --wait 0.01",
    "export": "--model model.json --out again.json --catboost again.cbm.json",
    "ui": "--party empty --no-browser",  # with a valid file it would not end
    "cuts": "--party bank/party.toml --job job.toml",
    "estimate": "--job job.toml --samples 100 --features 3,2 --cuts 31 --delay 1 --rate 100",
    "inspect": "model.json --plot pictures --report losses.json",
    "simulate": "--data shop/train.csv --id id --label label --protocol plain --tables 1 --depth 1 "
    "--parties 2 --report report.json --save saved.json",
    "demo": "--data moon --folder demo",  # a known data set would be a whole run
    "example": "example --data moon",
    "audit": "verify audit.log --head abc",
}
"""Arguments of each command, in which the test replaces one word at a time."""

INVALID_INPUTS = {
    "missing path": "nowhere/at/all",
    "a file as a folder": "job.toml/x",
    "a folder": "folder",
    "an empty file": "empty",
    "bytes": "bytes",
    "wrong TOML": "wrong.toml",
    "other TOML": "other.toml",
    "half of JSON": "half.json",
    "other JSON": "other.json",
    "an endless file": "/dev/zero",
    "an unreadable file": "/proc/self/mem",
    "an unwritable file": "/proc/nothing",
    "a name too long": "x" * 256,
    "a name that is not UTF-8": os.fsdecode(b"caf\xe9"),
    "non-Latin text": "日本\u202e語",
    "markup": "[red]x[/nope]",
    "an empty text": "",
    "a number": "-5",
}
SLOW_COMMANDS = ("dealer", "align", "train", "predict", "serve")
"""Slow commands, which get fewer inputs: other commands read the same files."""
FEW_INPUTS = (
    "missing path",
    "a folder",
    "bytes",
    "other TOML",
    "an unreadable file",
    "a name too long",
)
# A command succeeds, or fails with one of these exit codes.
EXIT_CODES = {0, 2, 3, 4, 5, 6, 7, 9}


@pytest.fixture(scope="module")
def federation_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a trained federation, and invalid files."""
    local = harness.prepare(tmp_path_factory.mktemp("nonsense") / "at", tables=1)
    for result in harness.run(local, "train").results.values():
        assert not isinstance(result, BaseException), result
    at = local.folder
    save_model(harness.model_of(local), at / "model.json")
    AuditLog(at / "audit.log").append("began", command="train", name="x", job="y")
    (at / "losses.json").write_text(json.dumps({"losses": [0.5, 0.4]}))
    (at / "folder").mkdir()
    (at / os.fsdecode(b"caf\xe9")).write_text("id,a,label\n1,2,3\n")
    (at / "empty").touch()
    (at / "bytes").write_bytes(bytes(range(256)) * 40)
    (at / "wrong.toml").write_text("a = [1,\n")
    (at / "other.toml").write_text('name = 3\nparticipants = [1]\ndealers = ""\ndata = 4\n')
    (at / "half.json").write_text('{"format": "privet')
    (at / "other.json").write_text('[{"format": "\\ud800"}]')
    return at


@pytest.fixture
def federation_copy(
    federation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(federation_folder, tmp_path / "at")
    monkeypatch.chdir(tmp_path / "at")
    monkeypatch.setenv("COLUMNS", "300")


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["privet", *arguments])
    try:
        app.main()
    except SystemExit as ended:
        return ended.code
    raise AssertionError("the command did not exit")


def find_replaceable(words: list[str]) -> list[int]:
    """Return the positions of replaceable words: neither options nor the value of --wait."""
    return [
        number
        for number, word in enumerate(words)
        if not word.startswith("--") and (not number or words[number - 1] != "--wait")
    ]


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW_COMMANDS else []) for c in ARGUMENTS],
)
@pytest.mark.usefixtures("federation_copy")
def test_invalid_input_gets_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = shlex.split(ARGUMENTS[command])
    for number in find_replaceable(words):
        for kind in FEW_INPUTS if command in SLOW_COMMANDS else INVALID_INPUTS:
            invalid_input = INVALID_INPUTS[kind]
            arguments = [*words[:number], invalid_input, *words[number + 1 :]]
            code = run_command(monkeypatch, command, *arguments)
            output = capsys.readouterr().err
            assert code in EXIT_CODES, (kind, arguments, code, output)
            assert "Traceback" not in output, (kind, arguments, output)
            if code:
                assert "rror" in output or code == 2 or command == "check", (
                    kind,
                    arguments,
                    output,
                )


def test_all_commands_are_covered() -> None:
    assert list(ARGUMENTS) == list(COMMAND_SPECS)


@pytest.mark.parametrize("key", ["name", "key", "certificate", "folder", "audit", "listen", "path"])
@pytest.mark.usefixtures("federation_copy")
def test_invalid_values_in_party_toml(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    party_path = Path("bank/party.toml")
    lines = [
        line for line in party_path.read_text().splitlines() if not line.startswith(f"{key} =")
    ]
    for kind, invalid_input in {**INVALID_INPUTS, "a character of code 0": "a\0b"}.items():
        if kind == "a name that is not UTF-8":
            continue  # there is none in TOML
        line = f"{key} = {json.dumps(invalid_input)}"
        party_path.write_text("\n".join([*lines, line] if key == "path" else [line, *lines]) + "\n")
        for command in ("check", "cuts", *(["train"] if kind in FEW_INPUTS else [])):
            wait = ["--wait=0.01"] if command == "train" else []
            arguments = [command, "--job=job.toml", f"--party={party_path}", *wait]
            code = run_command(monkeypatch, *arguments)
            output = capsys.readouterr().err
            assert code in EXIT_CODES, (kind, arguments, code, output)
            assert "Traceback" not in output, (kind, arguments, output)


INSPECT = "inspect model.json"
STREAMS = {
    "a closed pipe": (f"{INSPECT} | head -c 1 >/dev/null", 0),
    "a full disk": (f"{INSPECT} >/dev/full", 6),
    "a full disk, in the middle": (f"{INSPECT} --json >/dev/full", 6),
    "no stdout": (f"{INSPECT} >&-", 0),
    "no stderr": ("inspect empty 2>&-", 5),
    "no standard streams": ("inspect empty <&- >&- 2>&-", 5),
    "stderr on a full disk": ("inspect empty 2>/dev/full", 5),
    "help with a closed pipe": ("simulate --help | true", 0),
}


NO_FULL_DISK = "there is no /dev/full: full disks are NOT tested"


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.usefixtures("federation_copy")
def test_closed_or_full_streams(kind: str) -> None:
    line, code = STREAMS[kind]
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip(NO_FULL_DISK)
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONUNBUFFERED"}
    process = subprocess.run(  # noqa: S602
        f"{shlex.quote(sys.executable)} -m privet {line}",
        shell=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in process.stderr
    assert "Exception ignored" not in process.stderr
    assert process.returncode == code, process.stderr
    if code == 6:
        assert process.stderr == "error: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason=NO_FULL_DISK)
def test_full_disk_at_exit() -> None:
    """Predictions are buffered bytes, which are flushed only after the command is done."""
    code = """
import sys
from privet.cli import app
app.app = lambda: sys.stdout.buffer.write(b"id,prediction")
app.main()
"""
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert (done.returncode, done.stderr) == (6, "error: No space left on device\n")


@pytest.mark.usefixtures("federation_copy")
def test_names_that_the_terminal_cannot_encode() -> None:
    text = Path("shop/train.csv").read_text().replace("id,", "id,Größe 日本,", 1)
    head, *lines = text.splitlines()
    rows = [line.replace(",", f",{number},", 1) for number, line in enumerate(lines)]
    Path("t.csv").write_text("\n".join([head, *rows]) + "\n")
    command = "simulate --data t.csv --protocol plain --tables 1 --depth 3 --parties 2"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "privet", *command.split()],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["rich.console", "typer", "numpy", "privet.config.job"])
def test_an_interrupt_while_it_is_imported(module: str) -> None:
    code = f"""
import sys
class Interrupt:
    def find_spec(name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt)
sys.argv = ["privet", "train", "--help"]
from privet.__main__ import main
main()
"""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("command", ["init", "keys", "train", "simulate", "example"])
@pytest.mark.usefixtures("federation_copy")
def test_a_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for folder in (Path(), *(path for path in Path().rglob("*") if path.is_dir())):
        folder.chmod(0o555)
    if os.access(".", os.W_OK):
        pytest.skip("root may write everywhere: folders that cannot be written are NOT tested")
    line = ARGUMENTS[command].replace("moon", "breast-cancer")
    assert run_command(monkeypatch, command, *shlex.split(line)) == 6
    assert "cannot be" in capsys.readouterr().err
