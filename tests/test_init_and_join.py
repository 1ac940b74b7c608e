"""A federation that is created only with `privet init` and `privet join`."""

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
from tests.init_inputs import ENVIRONMENT, make_init_arguments, write_tables


class Result(NamedTuple):
    code: int | str | None
    out: str
    err: str


Privet = Callable[..., Result]


@pytest.fixture
def privet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Privet:
    """Return a function that runs commands in this process, without start-up time."""
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["privet", *map(str, arguments)])
        capsys.readouterr()
        try:
            app.main()
        except SystemExit as ended:
            return Result(ended.code, *capsys.readouterr())
        raise AssertionError("the command did not exit")

    return run


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a folder with a table for each organisation; the shop has the label."""
    monkeypatch.chdir(write_tables(tmp_path / "at"))
    return tmp_path / "at"


def run_init(privet: Privet, *options: str, address: str = "127.0.0.1:7403") -> Result:
    return privet(
        *("init", "--folder", "shop", "--name", "shop", "--address", address),
        *("--others", "bank,telecom", "--table", "shop/train.csv", *options),
    )


def run_join(
    privet: Privet, name: str, job_path: str = "shop/job.toml", address: str = ""
) -> Result:
    address = address or f"127.0.0.1:{7400 + len(name)}"
    table = () if name == "dealer" else ("--table", f"{name}/train.csv")
    options = ("--folder", name, "--name", name, "--address", address)
    return privet("join", job_path, *options, *table)


def find_digest(output: str) -> str:
    (found,) = re.findall(r"^  ((?:[0-9a-f]{4} ){7}[0-9a-f]{4})$", output, re.MULTILINE)
    return str(found)


def find_commands(output: str) -> list[list[str]]:
    """Return the commands that the output advises."""
    return [shlex.split(line) for line in output.splitlines() if line.startswith("  privet ")]


def run_in_parallel(command_lines: list[list[str]], timeout: float = 100) -> list[Result]:
    def run(command: list[str]) -> Result:
        process = subprocess.run(  # noqa: S603
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=timeout,
            check=False,
        )
        return Result(process.returncode, process.stdout, process.stderr)

    with ThreadPoolExecutor(len(command_lines)) as pool:
        return list(pool.map(run, command_lines))


def test_a_federation_made_by_init_and_join(folders: Path, privet: Privet) -> None:
    """Four organisations follow the advice in the output, up to predictions."""
    ports = [f"127.0.0.1:{port}" for port in find_free_ports(4)]
    options = ("--tables", "3", "--depth", "2", "--job-name", "diagnosis")
    init_result = run_init(privet, *options, address=ports[0])
    assert init_result.code == 0, init_result.err
    assert "Send it to bank, telecom and dealer." in init_result.err
    rejected = privet("train", "--party", "shop/party.toml", "--job", "shop/job.toml")
    assert rejected.code == 3
    assert "the seats of bank, telecom and dealer are not filled in yet: they run" in rejected.err
    shutil.copy("shop/job.toml", "sent.toml")
    outputs = {}
    for name, port in zip(("bank", "telecom", "dealer"), ports[1:], strict=True):
        join_result = run_join(privet, name, "sent.toml", port)
        assert join_result.code == 0, join_result.err
        assert "The job diagnosis: classification, 3 tables of 2 tests each." in join_result.err
        assert "shop has the label, shop gets predictions, dealer deals." in join_result.err
        assert init_result.out.strip() in join_result.err  # the shop's fingerprint, to compare
        assert f"send {name}/job.toml back" in join_result.err
        merge_result = privet("join", f"{name}/job.toml", "--folder", "shop")
        assert f"taken in: {name} at {port}, fingerprint\n  {join_result.out}" in merge_result.err
        outputs["shop"] = merge_result.err
    assert "send shop/job.toml to bank, telecom and dealer" in outputs["shop"]
    for name in ("bank", "telecom", "dealer"):
        outputs[name] = privet("join", "shop/job.toml", "--folder", name).err
    assert len({find_digest(output) for output in outputs.values()}) == 1
    assert len({(folders / name / "job.toml").read_bytes() for name in outputs}) == 1
    checks, trainings = zip(*(find_commands(output) for output in outputs.values()), strict=True)
    for result in run_in_parallel(list(checks)):
        assert result.code == 0, result
        assert find_digest(outputs["shop"]) in result.out
    for result in run_in_parallel([*trainings]):
        assert result.code == 0, result
    dealer = trainings[list(outputs).index("dealer")]
    predictions = [
        shlex.split(
            f"privet predict --party {name}/party.toml --model {name}/models/diagnosis.part "
            f"--data {name}/new.csv"
        )
        for name in ("bank", "telecom", "shop")
    ]
    predicted = run_in_parallel([dealer, *predictions])
    assert [each.code for each in predicted] == [0] * 4, predicted
    truth = read_frame(folders / "shop" / "truth.csv", id="id")
    found = [int(line.split(",")[1]) for line in predicted[-1].out.splitlines()[1:]]
    assert (truth.columns[0] == found).mean() > 0.9


def test_job_is_passed_from_member_to_member(folders: Path, privet: Privet) -> None:
    """Each member fills in its entry and sends the job on; the last one sends it to all."""
    run_init(privet)
    job_path = "shop/job.toml"
    for name in ("bank", "telecom", "dealer"):
        result = run_join(privet, name, job_path)
        assert result.code == 0, result.err
        job_path = f"{name}/job.toml"
    assert "send dealer/job.toml to shop, bank and telecom" in result.err
    outputs = [
        privet("join", job_path, "--folder", name).err for name in ("shop", "bank", "telecom")
    ]
    assert {find_digest(each) for each in outputs} == {find_digest(result.err)}
    assert Job.read(folders / "bank" / "job.toml").party_names == ["shop", "bank", "telecom"]


def test_participants_play_the_dealers(folders: Path, privet: Privet) -> None:
    result = run_init(privet, "--dealers", "shop,bank,telecom")
    assert result.code == 0, result.err
    assert len(result.out.split()) == 2  # a key for each entry
    assert "Send it to bank and telecom." in result.err
    for name in ("bank", "telecom"):
        address = f"{name}.example:7400"
        assert run_join(privet, name, address=address).code == 0
        last = privet("join", f"{name}/job.toml", "--folder", "shop")
    assert "All seats are filled in" in last.err
    job = Job.read(folders / "shop" / "job.toml")
    assert job.dealer_operators == {f"{name}-dealer": name for name in ("shop", "bank", "telecom")}
    assert not job.align
    assert job.get_entry("bank-dealer").address == "bank.example:7401"
    party_config = PartyConfig.load(folders / "bank" / "party.toml")
    assert party_config.dealer is not None
    assert Path(party_config.dealer.key).exists()


def test_three_dealers_from_outside(folders: Path, privet: Privet) -> None:
    run_init(privet, "--dealers", "notary,university,auditor")
    for name in ("bank", "telecom"):
        run_join(privet, name)
        privet("join", f"{name}/job.toml", "--folder", "shop")
    for number, name in enumerate(("notary", "university", "auditor")):
        options = ("--folder", name, "--name", name, "--address", f"{name}.example:740{number}")
        assert privet("join", "shop/job.toml", *options).code == 0
        last = privet("join", f"{name}/job.toml", "--folder", "shop")
    assert "All seats are filled in" in last.err
    output = privet("join", "shop/job.toml", "--folder", "notary").err
    assert "  privet dealer --job notary/job.toml --name notary --key notary/notary.key" in output


def test_another_participant_is_the_label_holder(folders: Path, privet: Privet) -> None:
    """The organisation that runs `init` need not be the label holder, who checks the label."""
    init_command = shlex.split(
        "init --folder bank --name bank --address bank.example:7400 --others telecom,shop "
        "--table bank/train.csv --active shop"
    )
    assert "--task" in privet(*init_command).err
    assert privet(*init_command, "--task", "classification", "--classes", "3").code == 0
    join_command = shlex.split(
        "join bank/job.toml --folder shop --name shop --address shop.example:7400 "
        "--table shop/train.csv"
    )
    rejected = privet(*join_command)
    assert (rejected.code, (folders / "shop" / "shop.key").exists()) == (4, False)
    assert "all agreed on 3 classes; set classes = 2 in everybody's job" in rejected.err
    job = folders / "bank" / "job.toml"
    job.write_text(job.read_text().replace("classes = 3", "classes = 2"))
    assert privet(*join_command).code == 0
    assert PartyConfig.load(folders / "shop" / "party.toml").data.label == "label"


def test_existing_keys_and_files_are_kept(folders: Path, privet: Privet) -> None:
    keys = privet("keys", "shop", "--folder", "shop")
    first = run_init(privet)
    assert first.out == keys.out
    assert "used, since there were keys: shop/shop.key" in first.err
    again = run_init(privet)
    assert again.code == 6
    assert "job.toml: is there already, and is not overwritten" in again.err
    (folders / "shop" / "job.toml").unlink()
    twice = run_init(privet)
    assert twice.code == 3
    assert "party.toml is there already, and describes your table" in twice.err
    init_options = ("--folder", "shop", "--address", "shop.example:7403", "--others", "bank")
    assert privet("init", *init_options).code == 0
    text = (folders / "shop" / "job.toml").read_text()
    text = text.replace("recipient", 'export = "shop"\nrecipient') + "# a comment of ours\n"
    (folders / "shop" / "job.toml").write_text(text)
    join_options = ("--folder", "bank", "--name", "bank", "--address", "bank.example:7401")
    result = privet("join", "shop/job.toml", *join_options, "--table", "bank/train.csv")
    assert (result.code, "It also says: export = shop." in result.err) == (0, True)
    assert "# a comment of ours" in (folders / "bank" / "job.toml").read_text()


def test_changed_address_is_replaced(folders: Path, privet: Privet) -> None:
    run_init(privet)
    run_join(privet, "bank", address="bank.example:7401")
    privet("join", "bank/job.toml", "--folder", "shop")
    moved = privet("join", "bank/job.toml", "--folder", "bank", "--address", "new.example:7401")
    assert "your address was bank.example:7401" in moved.err
    rejected = privet("join", "bank/job.toml", "--folder", "shop")
    assert rejected.code == 9
    assert "the seat of bank is filled in twice: bank.example:7401 with" in rejected.err
    assert privet("join", "bank/job.toml", "--folder", "shop", "--replace", "bank").code == 0
    assert JobDraft.read("shop/job.toml").entries["bank"]["address"] == "new.example:7401"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["init"], 3, "so give what is missing: --name, --address, --others, --table"),
        (make_init_arguments(address=None), 3, "so give what is missing: --address"),
        (
            make_init_arguments(address="shop.example:many"),
            3,
            "'shop.example:many' is not HOST:PORT",
        ),
        (make_init_arguments(address="shop.example"), 3, "is not HOST:PORT, as bank.example:7400"),
        (make_init_arguments(address="shop.example:70000"), 3, "is not HOST:PORT"),
        (make_init_arguments(name="the shop"), 3, "name: 'the shop' is none"),
        (make_init_arguments(others="bank,shop"), 3, "others: shop is taken"),
        (make_init_arguments(others=" , "), 3, "there must be one other participant"),
        (
            make_init_arguments(dealers="bank"),
            3,
            "bank would be the only dealer, and know all masks",
        ),
        (make_init_arguments(dealers="one,two"), 3, "there are one or three, and here are 2"),
        (
            make_init_arguments(dealers="one,two,bank"),
            3,
            "three participants play the three dealers",
        ),
        (make_init_arguments(table="nowhere.csv"), 4, "nowhere.csv"),
        (make_init_arguments(table="shop"), 4, "shop"),
        (make_init_arguments(id="customer"), 4, "there is no column 'customer'; there are 'id', "),
        (make_init_arguments(label="churned"), 4, "there is no column 'churned'"),
        (
            make_init_arguments(table="bank/train.csv"),
            3,
            "say which column is the label with --label",
        ),
        (make_init_arguments(active="moon"), 3, "active: 'moon' is none of bank, telecom"),
        (make_init_arguments(task="ranking"), 3, "task: 'ranking' is none of"),
        (make_init_arguments(label="worst area", task="classification"), 4, "32 classes at most"),
        (
            make_init_arguments(recipient="moon"),
            3,
            "recipient: 'moon' is none of shop, bank, telecom",
        ),
        (make_init_arguments(tables="0"), 3, "params.tables: "),
        (make_init_arguments(folder="shop/train.csv"), 6, "is no folder"),
        (make_init_arguments(folder="/proc/nowhere"), 6, "cannot be made"),
    ],
)
def test_invalid_options_of_init(
    folders: Path, privet: Privet, arguments: list[str], code: int, complaint: str
) -> None:
    before = sorted(folders.rglob("*"))
    result = privet(*arguments)
    assert (result.code, complaint in result.err) == (code, True), result
    assert "Traceback" not in result.err
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
def test_invalid_options_of_join(
    folders: Path, privet: Privet, arguments: list[str], code: int, complaint: str
) -> None:
    run_init(privet)
    before = sorted(folders.rglob("*"))
    job_arguments = [] if arguments and not arguments[0].startswith("-") else ["shop/job.toml"]
    if arguments == ["--name=shop", "--address=b:1"]:
        arguments = [*arguments, "--table=bank/train.csv"]
    result = privet("join", *job_arguments, *arguments, "--folder=bank")
    assert (result.code, complaint in result.err) == (code, True), result
    assert "Traceback" not in result.err
    assert sorted(folders.rglob("*")) == before


def test_entry_claimed_twice_is_rejected(folders: Path, privet: Privet) -> None:
    """If two members claim one entry, both receive an error, and the shop that merges both."""
    run_init(privet)
    shutil.copytree(folders / "bank", folders / "thief")
    run_join(privet, "bank")
    options = ("join", "shop/job.toml", "--folder", "thief", "--name", "bank")
    privet(*options, "--address", "thief.example:7401", "--table", "bank/train.csv")
    assert privet("join", "thief/job.toml", "--folder", "shop").code == 0
    for result in (
        privet("join", "bank/job.toml", "--folder", "shop"),
        privet("join", "shop/job.toml", "--folder", "bank"),
    ):
        assert result.code == 9
        assert "the seat of bank is filled in twice" in result.err
    (folders / "bank" / "job.toml").unlink()
    result = privet("join", "shop/job.toml", "--folder", "bank")
    assert result.code == 9
    assert "is filled in with another key" in result.err


def test_different_job_is_not_merged(folders: Path, privet: Privet) -> None:
    run_init(privet)
    run_join(privet, "bank")
    text = (folders / "bank" / "job.toml").read_text()
    (folders / "sent.toml").write_text(text.replace("tables = 50", "tables = 60"))
    result = privet("join", "sent.toml", "--folder", "shop")
    assert result.code == 9
    assert "are not the same job: tables: 50 here, 60 there" in result.err


@pytest.mark.parametrize("file_name", ["party.toml", "job.toml"])
def test_interrupt_leaves_no_files(
    folders: Path, privet: Privet, monkeypatch: pytest.MonkeyPatch, file_name: str
) -> None:
    before = sorted(folders.rglob("*"))
    replace = os.replace

    def interrupt(source: Path, target: Path) -> None:
        if target.name == file_name:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupt)
    assert run_init(privet).code == 130
    assert sorted(folders.rglob("*")) == before
