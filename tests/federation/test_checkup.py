"""Whatever would keep somebody from taking part is found, and the rest is good."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from privet.cli import app
from privet.federation.checkup import Finding, check_up
from privet.files.contacts import parse_address
from privet.files.job import Job
from privet.files.lock import locked
from privet.files.party_file import PartyFile
from privet.laboratory.local_federation import LocalFederation
from tests.federation.harness import change, prepare, run
from tests.federation.test_bad_peers import new_keys


def findings(local: LocalFederation, name: str = "shop") -> list[Finding]:
    party = PartyFile.load(local.folder / name / "party.toml")
    return list(check_up(party, Job.read(local.job)))


def bad(local: LocalFederation, name: str = "shop") -> list[Finding]:
    return [finding for finding in findings(local, name) if finding.verdict == "bad"]


def test_all_is_well(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    for name in local.names:
        found = findings(local, name)
        assert {each.verdict for each in found if each.what != "clock"} == {"good"}
        texts = {each.what: each.text for each in found}
        assert "expires in 36" in texts["keys"]
        assert texts["data"].startswith(str(tmp_path / name / "train.csv"))
        assert "40 rows" in texts["data"]
        assert ("and the label" in texts["data"]) == (name == "shop")
        assert "nobody listens there yet" in texts["dealer"]
    run(local, "train").checked()
    assert "3 tables are there from earlier" in findings(local)[-1].text


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    findings(local)
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before] == [tmp_path / "shop/models"]


def _lose_the_key(local: LocalFederation) -> None:
    (local.folder / "shop" / "shop.key").unlink()


def _spoil_a_cell(local: LocalFederation) -> None:
    change(local.folder / "shop" / "train.csv", ("1-3,", "1-2,"))


def _name_nobody(local: LocalFederation) -> None:
    address = Job.read(local.job).contact("bank").address
    change(local.job, (address, "no-such-host.invalid:7000"))


def _other_keys(local: LocalFederation) -> None:
    new_keys(local, "shop")


@pytest.mark.parametrize(
    ("spoil", "what", "code", "complaint"),
    [
        (_lose_the_key, "keys", 6, "shop.key: no key"),
        (_other_keys, "keys", 3, "the job expects"),
        (_spoil_a_cell, "data", 4, "1 id is there more than once"),
        (_name_nobody, "bank", 6, "the name is not known here"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path,
    spoil: Callable[[LocalFederation], None],
    what: str,
    code: int,
    complaint: str,
) -> None:
    local = prepare(tmp_path)
    spoil(local)
    (found,) = bad(local)
    assert (found.what, found.code) == (what, code)
    assert complaint in found.text


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    address = parse_address(Job.read(local.job).contact("shop").address)
    with socket.create_server(address):
        (found,) = bad(local)
    assert (found.what, found.code) == (f"port {address[1]}", 6)
    assert "Address already in use" in found.text


def test_a_run_that_is_at_work(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    with locked(tmp_path / "shop" / "models", "rehearsal"):
        (found,) = bad(local)
    assert "works there for the job" in found.text


def test_a_certificate_that_expires_soon_and_a_key_that_others_can_read(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    change(local.job, new_keys(local, "shop", valid_days=20))
    (tmp_path / "shop" / "shop.key").chmod(0o644)
    doubtful = [each.text for each in findings(local) if each.what == "keys"][1:]
    assert "expires in 19 days: renew it" in doubtful[0]
    assert "can be read by others" in doubtful[1]
    assert bad(local) == []


@pytest.mark.parametrize("as_json", [True, False])
def test_as_a_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    local = prepare(tmp_path)
    command = ["privet", "check", f"--job={local.job}", f"--party={tmp_path}/shop/party.toml"]
    monkeypatch.setattr(sys, "argv", command + (["--json"] if as_json else []))
    for code in (0, 4):
        if code:
            _spoil_a_cell(local)
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert ended.value.code == code
        said = capsys.readouterr().out
        if as_json:
            verdicts = {each["what"]: each["verdict"] for each in json.loads(said)}
            assert verdicts["data"] == ("bad" if code else "good")
        else:
            assert ("✗ data: " if code else "✓ data: ") in said


@pytest.mark.parametrize(("known", "code"), [(True, 0), (False, 6)])
def test_a_dealer_looks_at_what_it_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    known: bool,
    code: int,
) -> None:
    local = prepare(tmp_path)
    if not known:
        (tmp_path / "dealer" / "dealer.key").unlink()
    monkeypatch.chdir(tmp_path / "dealer")
    monkeypatch.setattr(sys, "argv", ["privet", "check", f"--job={local.job}", "--dealer"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == code
    said = capsys.readouterr().out
    assert ("✓ keys: " if known else "✗ keys: ") in said
    assert "✓ bank: " in said
    assert "data: " not in said


def with_workers(local: LocalFederation, cluster: str, shards: int = 3) -> list[Finding]:
    change(local.job, ("[params]", f"shards = {shards}\n\n[params]"))
    change(local.folder / "shop" / "party.toml", ("[data]", f"[cluster]\n{cluster}\n\n[data]"))
    return [each for each in findings(local) if each.verdict == "bad" or each.what == "workers"]


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        ("", "threads of this process"),
        ("local = 1", "1 process on this machine"),
        ("local = 8", "3 processes on this machine"),
    ],
)
def test_where_workers_will_be(tmp_path: Path, cluster: str, where: str) -> None:
    (found,) = with_workers(prepare(tmp_path), cluster)
    assert (found.verdict, found.text) == ("good", f"3 shards, in {where}")


@pytest.mark.parametrize(
    ("cluster", "complaint"),
    [
        ('advertise = "no-such-host.invalid"', "cluster.advertise: no-such-host.invalid is not"),
        ("ports = [{port}, {port}]", "cluster.ports: 0 of 127.0.0.1 from"),
        ('door = "127.0.0.1:{port}"', "cannot listen on 127.0.0.1:"),
        (
            'scheduler = "tls://127.0.0.1:1"\nca = "no.pem"\ncertificate = "no.pem"\n'
            'key = "no.key"',
            "no.pem: No such file or directory",
        ),
        (
            'scheduler = "tls://127.0.0.1:1"\nca = "shop.crt"\ncertificate = "shop.crt"\n'
            'key = "../bank/bank.key"',
            "cannot be used together",
        ),
        (
            'scheduler = "tls://127.0.0.1:1"\nca = "shop.crt"\ncertificate = "shop.crt"\n'
            'key = "shop.key"',
            "no Dask scheduler at tls://127.0.0.1:1",
        ),
    ],
)
def test_workers_that_could_not_be(tmp_path: Path, cluster: str, complaint: str) -> None:
    if "scheduler" in cluster:
        pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = cluster.replace("{port}", str(taken.getsockname()[1]))
        (found,) = with_workers(prepare(tmp_path), text)
    assert (found.what, found.verdict, found.code) == ("workers", "bad", 6)
    assert complaint in found.text


def test_more_shards_than_rows(tmp_path: Path) -> None:
    _, found = with_workers(prepare(tmp_path), "", shards=41)
    assert (found.what, found.code) == ("data", 4)
    assert "shards: 41, and there are 40 rows" in found.text


def test_workers_without_shards(tmp_path: Path) -> None:
    (found,) = with_workers(prepare(tmp_path), "local = 2", shards=1)
    assert found.verdict == "doubtful"
    assert "this one has none" in found.text


def test_a_dealer_s_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    change(local.job, ("[params]", "shards = 2\n\n[params]"))
    folder = local.folder / "dealer"
    (folder / "cluster.toml").write_text("local = 1\nports = [1, 1]\n")
    monkeypatch.chdir(folder)
    given = ["privet", "check", "--dealer", "--job", str(local.job), "--cluster", "cluster.toml"]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 6
