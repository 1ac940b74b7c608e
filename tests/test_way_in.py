"""The way in: a federation made by `privet init` and `privet join` alone, as people make it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from privet.cli import app
from privet.config.draft import JobDraft
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.reader import read_frame
from privet.experiments.local_federation import find_free_ports
from tests.newcomers import ENVIRONMENT, start_of, write_tables


class Ended(NamedTuple):
    code: int | str | None
    out: str
    err: str


Privet = Callable[..., Ended]


@pytest.fixture
def privet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Privet:
    """Run commands in this process, which take no time to start."""
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["privet", *map(str, arguments)])
        capsys.readouterr()
        try:
            app.main()
        except SystemExit as ended:
            return Ended(ended.code, *capsys.readouterr())
        raise AssertionError("a command ends the process")

    return run


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for each organisation, with its table; the shop has the label."""
    monkeypatch.chdir(write_tables(tmp_path / "at"))
    return tmp_path / "at"


def begin(privet: Privet, *options: str, address: str = "127.0.0.1:7403") -> Ended:
    return privet(
        *("init", "--folder", "shop", "--name", "shop", "--address", address),
        *("--others", "bank,telecom", "--table", "shop/train.csv", *options),
    )


def join(privet: Privet, name: str, sent: str = "shop/job.toml", address: str = "") -> Ended:
    address = address or f"127.0.0.1:{7400 + len(name)}"
    table = () if name == "dealer" else ("--table", f"{name}/train.csv")
    place = ("--folder", name, "--name", name, "--address", address)
    return privet("join", sent, *place, *table)


def digest(said: str) -> str:
    (found,) = re.findall(r"^  ((?:[0-9a-f]{4} ){7}[0-9a-f]{4})$", said, re.MULTILINE)
    return str(found)


def commands(said: str) -> list[list[str]]:
    """Return what somebody is told to type."""
    return [shlex.split(line) for line in said.splitlines() if line.startswith("  privet ")]


def at_once(every: list[list[str]], timeout: float = 100) -> list[Ended]:
    def run(command: list[str]) -> Ended:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=timeout,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    with ThreadPoolExecutor(len(every)) as pool:
        return list(pool.map(run, every))


def test_a_federation_made_by_init_and_join(folders: Path, privet: Privet) -> None:
    """Four organisations: each does what the last line that it saw said, until predictions."""
    ports = [f"127.0.0.1:{port}" for port in find_free_ports(4)]
    options = ("--tables", "3", "--depth", "2", "--job-name", "diagnosis")
    begun = begin(privet, *options, address=ports[0])
    assert begun.code == 0, begun.err
    assert "Send it to bank, telecom and dealer." in begun.err
    refused = privet("train", "--party", "shop/party.toml", "--job", "shop/job.toml")
    assert refused.code == 3
    assert "the seats of bank, telecom and dealer are not filled in yet: they run" in refused.err
    shutil.copy("shop/job.toml", "sent.toml")
    told = {}
    for name, port in zip(("bank", "telecom", "dealer"), ports[1:], strict=True):
        joined = join(privet, name, "sent.toml", port)
        assert joined.code == 0, joined.err
        assert "The job diagnosis: classification, 3 tables of 2 tests each." in joined.err
        assert "shop has the label, shop gets predictions, dealer deals." in joined.err
        assert begun.out.strip() in joined.err  # the shop's fingerprint, to compare
        assert f"send {name}/job.toml back" in joined.err
        taken_in = privet("join", f"{name}/job.toml", "--folder", "shop")
        assert f"taken in: {name} at {port}, fingerprint\n  {joined.out}" in taken_in.err
        told["shop"] = taken_in.err
    assert "send shop/job.toml to bank, telecom and dealer" in told["shop"]
    for name in ("bank", "telecom", "dealer"):
        told[name] = privet("join", "shop/job.toml", "--folder", name).err
    assert len({digest(said) for said in told.values()}) == 1
    assert len({(folders / name / "job.toml").read_bytes() for name in told}) == 1
    checks, trainings = zip(*(commands(said) for said in told.values()), strict=True)
    for ended in at_once(list(checks)):
        assert ended.code == 0, ended
        assert digest(told["shop"]) in ended.out
    for ended in at_once([*trainings]):
        assert ended.code == 0, ended
    dealer = trainings[list(told).index("dealer")]
    predictions = [
        shlex.split(
            f"privet predict --party {name}/party.toml --model {name}/models/diagnosis.part "
            f"--data {name}/new.csv"
        )
        for name in ("bank", "telecom", "shop")
    ]
    predicted = at_once([dealer, *predictions])
    assert [each.code for each in predicted] == [0] * 4, predicted
    truth = read_frame(folders / "shop" / "truth.csv", id="id")
    found = [int(line.split(",")[1]) for line in predicted[-1].out.splitlines()[1:]]
    assert (truth.columns[0] == found).mean() > 0.9


def test_a_job_that_goes_from_one_to_the_next(folders: Path, privet: Privet) -> None:
    """Nobody collects: each fills in its seat and sends the job on, and the last one sends it."""
    begin(privet)
    sent = "shop/job.toml"
    for name in ("bank", "telecom", "dealer"):
        joined = join(privet, name, sent)
        assert joined.code == 0, joined.err
        sent = f"{name}/job.toml"
    assert "send dealer/job.toml to shop, bank and telecom" in joined.err
    said = [privet("join", sent, "--folder", name).err for name in ("shop", "bank", "telecom")]
    assert {digest(each) for each in said} == {digest(joined.err)}
    assert Job.read(folders / "bank" / "job.toml").party_names == ["shop", "bank", "telecom"]


def test_participants_who_play_the_dealers(folders: Path, privet: Privet) -> None:
    begun = begin(privet, "--dealers", "shop,bank,telecom")
    assert begun.code == 0, begun.err
    assert len(begun.out.split()) == 2  # a key of its own for each seat
    assert "Send it to bank and telecom." in begun.err
    for name in ("bank", "telecom"):
        address = f"{name}.example:7400"
        assert join(privet, name, address=address).code == 0
        last = privet("join", f"{name}/job.toml", "--folder", "shop")
    assert "All seats are filled in" in last.err
    job = Job.read(folders / "shop" / "job.toml")
    assert job.dealer_operators == {f"{name}-dealer": name for name in ("shop", "bank", "telecom")}
    assert not job.align
    assert job.get_entry("bank-dealer").address == "bank.example:7401"
    own = PartyConfig.load(folders / "bank" / "party.toml")
    assert own.dealer is not None
    assert Path(own.dealer.key).exists()


def test_three_dealers_from_outside(folders: Path, privet: Privet) -> None:
    begin(privet, "--dealers", "notary,university,auditor")
    for name in ("bank", "telecom"):
        join(privet, name)
        privet("join", f"{name}/job.toml", "--folder", "shop")
    for number, name in enumerate(("notary", "university", "auditor")):
        place = ("--folder", name, "--name", name, "--address", f"{name}.example:740{number}")
        assert privet("join", "shop/job.toml", *place).code == 0
        last = privet("join", f"{name}/job.toml", "--folder", "shop")
    assert "All seats are filled in" in last.err
    said = privet("join", "shop/job.toml", "--folder", "notary").err
    assert "  privet dealer --job notary/job.toml --name notary --key notary/notary.key" in said


def test_somebody_else_has_the_label(folders: Path, privet: Privet) -> None:
    """Whoever starts need not be the active one; the label's holder sees whether it fits."""
    start = shlex.split(
        "init --folder bank --name bank --address bank.example:7400 --others telecom,shop "
        "--table bank/train.csv --active shop"
    )
    assert "--task" in privet(*start).err
    assert privet(*start, "--task", "classification", "--classes", "3").code == 0
    sent = shlex.split(
        "join bank/job.toml --folder shop --name shop --address shop.example:7400 "
        "--table shop/train.csv"
    )
    refused = privet(*sent)
    assert (refused.code, (folders / "shop" / "shop.key").exists()) == (4, False)
    assert "all agreed on 3 classes; set classes = 2 in everybody's job" in refused.err
    job = folders / "bank" / "job.toml"
    job.write_text(job.read_text().replace("classes = 3", "classes = 2"))
    assert privet(*sent).code == 0
    assert PartyConfig.load(folders / "shop" / "party.toml").data.label == "label"


def test_what_is_there_is_used_and_kept(folders: Path, privet: Privet) -> None:
    keys = privet("keys", "shop", "--folder", "shop")
    begun = begin(privet)
    assert begun.out == keys.out
    assert "used, since there were keys: shop/shop.key" in begun.err
    again = begin(privet)
    assert again.code == 6
    assert "job.toml: is there already, and is not overwritten" in again.err
    (folders / "shop" / "job.toml").unlink()
    twice = begin(privet)
    assert twice.code == 3
    assert "party.toml is there already, and describes your table" in twice.err
    own = ("--folder", "shop", "--address", "shop.example:7403", "--others", "bank")
    assert privet("init", *own).code == 0
    text = (folders / "shop" / "job.toml").read_text()
    text = text.replace("recipient", 'export = "shop"\nrecipient') + "# a comment of ours\n"
    (folders / "shop" / "job.toml").write_text(text)
    other = ("--folder", "bank", "--name", "bank", "--address", "bank.example:7401")
    joined = privet("join", "shop/job.toml", *other, "--table", "bank/train.csv")
    assert (joined.code, "It also says: export = shop." in joined.err) == (0, True)
    assert "# a comment of ours" in (folders / "bank" / "job.toml").read_text()


def test_an_address_that_has_changed(folders: Path, privet: Privet) -> None:
    begin(privet)
    join(privet, "bank", address="bank.example:7401")
    privet("join", "bank/job.toml", "--folder", "shop")
    moved = privet("join", "bank/job.toml", "--folder", "bank", "--address", "new.example:7401")
    assert "your address was bank.example:7401" in moved.err
    refused = privet("join", "bank/job.toml", "--folder", "shop")
    assert refused.code == 9
    assert "the seat of bank is filled in twice: bank.example:7401 with" in refused.err
    assert privet("join", "bank/job.toml", "--folder", "shop", "--replace", "bank").code == 0
    assert JobDraft.read("shop/job.toml").entries["bank"]["address"] == "new.example:7401"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["init"], 3, "so give what is missing: --name, --address, --others, --table"),
        (start_of(address=None), 3, "so give what is missing: --address"),
        (start_of(address="shop.example:many"), 3, "'shop.example:many' is not HOST:PORT"),
        (start_of(address="shop.example"), 3, "is not HOST:PORT, as bank.example:7400"),
        (start_of(address="shop.example:70000"), 3, "is not HOST:PORT"),
        (start_of(name="the shop"), 3, "name: 'the shop' is none"),
        (start_of(others="bank,shop"), 3, "others: shop is taken"),
        (start_of(others=" , "), 3, "there must be one other participant"),
        (start_of(dealers="bank"), 3, "bank would be the only dealer, and know all masks"),
        (start_of(dealers="one,two"), 3, "there are one or three, and here are 2"),
        (start_of(dealers="one,two,bank"), 3, "three participants play the three dealers"),
        (start_of(table="nowhere.csv"), 4, "nowhere.csv"),
        (start_of(table="shop"), 4, "shop"),
        (start_of(id="customer"), 4, "there is no column 'customer'; there are 'id', "),
        (start_of(label="churned"), 4, "there is no column 'churned'"),
        (start_of(table="bank/train.csv"), 3, "say which column is the label with --label"),
        (start_of(active="moon"), 3, "active: 'moon' is none of bank, telecom"),
        (start_of(task="ranking"), 3, "task: 'ranking' is none of"),
        (start_of(label="worst area", task="classification"), 4, "32 classes at most"),
        (start_of(recipient="moon"), 3, "recipient: 'moon' is none of shop, bank, telecom"),
        (start_of(tables="0"), 3, "params.tables: "),
        (start_of(folder="shop/train.csv"), 6, "is no folder"),
        (start_of(folder="/proc/nowhere"), 6, "cannot be made"),
    ],
)
def test_wrong_answers_to_init(
    folders: Path, privet: Privet, arguments: list[str], code: int, complaint: str
) -> None:
    before = sorted(folders.rglob("*"))
    ended = privet(*arguments)
    assert (ended.code, complaint in ended.err) == (code, True), ended
    assert "Traceback" not in ended.err
    assert sorted(folders.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nowhere.toml"], 3, "nowhere.toml: No such file"),
        (["bank/train.csv"], 3, "bank/train.csv: not TOML"),
        (["--name=moon"], 3, "nobody called 'moon' takes part in shop/job.toml; there are shop,"),
        ([], 3, "say who you are with --name: shop, bank, telecom and dealer"),
        (["--name=bank"], 3, "so give what is missing: --address, --table"),
        (["--name=dealer"], 3, "so give what is missing: --address"),
        (["--name=bank", "--address=b:x", "--table=bank/train.csv"], 3, "'b:x' is not HOST:PORT"),
        (
            ["--name=bank", "--address=127.0.0.1:7403", "--table=bank/train.csv"],
            3,
            "address: 127.0.0.1:7403 is somebody else's in the job",
        ),
        (["--name=bank", "--address=b:1", "--table=no.csv"], 4, "no.csv"),
        (["--name=bank", "--address=b:1", "--table=bank/train.csv", "--id=x"], 4, "no column 'x'"),
        (
            ["--name=bank", "--address=b:1", "--table=bank/train.csv", "--label=id"],
            3,
            "label: the job has shop hold the label",
        ),
        (["--name=shop", "--address=b:1"], 9, "the seat of shop in shop/job.toml is filled in"),
        (["--name=bank", "--replace=moon"], 3, "replace: 'moon' is none of"),
    ],
)
def test_wrong_answers_to_join(
    folders: Path, privet: Privet, arguments: list[str], code: int, complaint: str
) -> None:
    begin(privet)
    before = sorted(folders.rglob("*"))
    sent = [] if arguments and not arguments[0].startswith("-") else ["shop/job.toml"]
    if arguments == ["--name=shop", "--address=b:1"]:
        arguments = [*arguments, "--table=bank/train.csv"]
    ended = privet("join", *sent, *arguments, "--folder=bank")
    assert (ended.code, complaint in ended.err) == (code, True), ended
    assert "Traceback" not in ended.err
    assert sorted(folders.rglob("*")) == before


def test_a_seat_that_somebody_else_has_taken(folders: Path, privet: Privet) -> None:
    """Both of two who think that they are the bank are told, and the shop, who gets both seats."""
    begin(privet)
    shutil.copytree(folders / "bank", folders / "thief")
    join(privet, "bank")
    stolen = ("join", "shop/job.toml", "--folder", "thief", "--name", "bank")
    privet(*stolen, "--address", "thief.example:7401", "--table", "bank/train.csv")
    assert privet("join", "thief/job.toml", "--folder", "shop").code == 0
    for ended in (
        privet("join", "bank/job.toml", "--folder", "shop"),
        privet("join", "shop/job.toml", "--folder", "bank"),
    ):
        assert ended.code == 9
        assert "the seat of bank is filled in twice" in ended.err
    (folders / "bank" / "job.toml").unlink()
    ended = privet("join", "shop/job.toml", "--folder", "bank")
    assert ended.code == 9
    assert "is filled in with another key" in ended.err


def test_another_job_is_not_taken_in(folders: Path, privet: Privet) -> None:
    begin(privet)
    join(privet, "bank")
    text = (folders / "bank" / "job.toml").read_text()
    (folders / "sent.toml").write_text(text.replace("tables = 50", "tables = 60"))
    ended = privet("join", "sent.toml", "--folder", "shop")
    assert ended.code == 9
    assert "are not the same job: tables: 50 here, 60 there" in ended.err


@pytest.mark.parametrize("moment", ["party.toml", "job.toml"])
def test_an_interrupt_leaves_nothing(
    folders: Path, privet: Privet, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before = sorted(folders.rglob("*"))
    replace = os.replace

    def interrupted(source: Path, target: Path) -> None:
        if target.name == moment:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    assert begin(privet).code == 130
    assert sorted(folders.rglob("*")) == before
