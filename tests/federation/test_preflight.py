"""Preflight checks: each problem that prevents a run is reported, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from privet.boosting import cost_estimate
from privet.cli import app
from privet.config.job import Job
from privet.config.members import parse_address
from privet.config.party import PartyConfig
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster import executors
from privet.federation.local_data import LocalTable
from privet.federation.preflight import CheckResult, check_party
from privet.filesystem import lock_job
from privet.transport.tls import create_identity
from tests.federation.harness import change, prepare, run
from tests.federation.test_setup_errors import new_keys


def check(local: LocalFederation, name: str = "shop") -> list[CheckResult]:
    party = PartyConfig.load(local.folder / name / "party.toml")
    return list(check_party(party, Job.read(local.job_path)))


def failures(local: LocalFederation, name: str = "shop") -> list[CheckResult]:
    return [finding for finding in check(local, name) if finding.verdict == "bad"]


def test_valid_setup_passes(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    for name in local.party_names:
        found = check(local, name)
        assert {each.verdict for each in found if each.what != "clock"} == {"good"}
        texts = {each.what: each.text for each in found}
        assert "expires in 36" in texts["keys"]
        assert texts["data"].startswith(str(tmp_path / name / "train.csv"))
        assert "40 rows" in texts["data"]
        assert ("and the label" in texts["data"]) == (name == "shop")
        assert "nobody listens there yet" in texts["dealer"]
    run(local, "train").checked()
    assert "3 tables are there from earlier" in check(local)[-1].text


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    check(local)
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before] == [tmp_path / "shop/models"]


def _delete_key(local: LocalFederation) -> None:
    (local.folder / "shop" / "shop.key").unlink()


def _duplicate_an_id(local: LocalFederation) -> None:
    change(local.folder / "shop" / "train.csv", ("1-3,", "1-2,"))


def _set_unknown_host(local: LocalFederation) -> None:
    address = Job.read(local.job_path).get_entry("bank").address
    change(local.job_path, (address, "no-such-host.invalid:7000"))


def _replace_keys(local: LocalFederation) -> None:
    new_keys(local, "shop")


@pytest.mark.parametrize(
    ("spoil", "subject", "code", "complaint"),
    [
        (_delete_key, "keys", 6, "shop.key: no key"),
        (_replace_keys, "keys", 3, "the job expects"),
        (_duplicate_an_id, "data", 4, "1 id is there more than once"),
        (_set_unknown_host, "bank", 6, "the name is not known here"),
    ],
)
def test_problem_is_reported(
    tmp_path: Path,
    spoil: Callable[[LocalFederation], None],
    subject: str,
    code: int,
    complaint: str,
) -> None:
    local = prepare(tmp_path)
    spoil(local)
    (found,) = failures(local)
    assert (found.what, found.code) == (subject, code)
    assert complaint in found.text


def test_port_in_use(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    address = parse_address(Job.read(local.job_path).get_entry("shop").address)
    with socket.create_server(address):
        (found,) = failures(local)
    assert (found.what, found.code) == (f"port {address[1]}", 6)
    assert "Address already in use" in found.text


def test_port_in_use_suggests_a_fix(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    address = parse_address(Job.read(local.job_path).get_entry("shop").address)
    with socket.create_server(address):
        (found,) = failures(local)
    assert found.text.endswith("stop what listens there, or have all change the port in the job")


def test_address_of_another_machine(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    address = Job.read(local.job_path).get_entry("shop").address
    change(local.job_path, (address, "203.0.113.7:7401"))  # reserved for documentation
    (found,) = failures(local)
    assert (found.what, found.code) == ("port 7401", 6)
    assert "this machine has no such address: say at which one we listen (`listen`" in found.text


def set_free_space(
    monkeypatch: pytest.MonkeyPatch, models: int | None = None, temporary: int | None = None
) -> None:
    """Set the free bytes of model folders and of all other folders."""

    def usage(path: str | Path) -> Usage:
        free = models if Path(path).name == "models" else temporary
        return Usage(10**12 if free is None else free)

    monkeypatch.setattr(shutil, "disk_usage", usage)


@dataclass
class Usage:
    free: int


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    for free in (0, 500):
        set_free_space(monkeypatch, models=free)
        (found,) = failures(local)
        assert (found.what, found.code) == ("disk", 6)
        assert found.text.startswith(f"{free / 1000:.1f} kB are free in ")
        assert re.search(r"up to [0-9.]+ kB there: make room, or choose another fo", found.text)
        # The check of the table does not depend on it.
        (data,) = (each for each in check(local) if each.what == "data")
        assert (data.verdict, "40 rows" in data.text) == ("good", True)
    _duplicate_an_id(local)
    assert [each.what for each in failures(local)] == ["data"]  # the required space is unknown


def test_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    set_free_space(monkeypatch, models=1_000_000, temporary=1_000_000)
    found = {each.what: each for each in check(local)}
    for subject in ("disk", "temporary files"):
        assert found[subject].verdict == "doubtful"
        assert found[subject].text.startswith("1.0 MB are free in ")
    assert failures(local) == []


def test_model_folder_is_a_file(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "shop" / "models").write_bytes(b"")
    (found,) = failures(local)
    assert (found.what, found.code) == ("disk", 6)
    (data,) = (each for each in check(local) if each.what == "data")
    assert (data.verdict, "40 rows" in data.text) == ("good", True)
    change(tmp_path / "shop" / "train.csv", ("1-3,", "1-2,"))
    assert [each.what for each in failures(local)] == ["disk", "data"]


def test_temporary_folder_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    monkeypatch.setattr(cost_estimate, "MAX_MEMORY_BYTES", 0)
    set_free_space(monkeypatch, temporary=9 * 40)
    (found,) = failures(local)
    assert (found.what, found.code) == ("temporary files", 6)
    assert found.text.endswith("make room, or have TMPDIR name another")


def test_unusable_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = [each for each in check(local) if each.what == "temporary files"]
    assert [each.verdict for each in found] == ["doubtful", "good"]
    assert found[0].text.startswith(f"TMPDIR is {tmp_path}/none, and no file can be made there")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = [each for each in check(local) if each.what == "temporary files"]
    assert [each.verdict for each in found] == ["good"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    (nowhere,) = failures(local)
    assert (nowhere.what, nowhere.code) == ("temporary files", 6)
    assert "gone cannot be written to: No such file or directory" in nowhere.text


def test_audit_log_must_be_writable(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    party = tmp_path / "shop" / "party.toml"
    change(party, ("[data]", 'audit = "logs/audit.log"\n[data]'))
    (found,) = failures(local)
    assert (found.what, found.code) == ("audit log", 6)
    assert "logs is not a directory; make it first" in found.text
    log = tmp_path / "shop" / "logs" / "audit.log"
    log.mkdir(parents=True)
    (found,) = failures(local)
    assert "the audit log cannot be written: Is a directory" in found.text
    log.rmdir()
    assert failures(local) == []
    assert not log.exists()
    log.write_bytes(b"")
    assert failures(local) == []
    assert log.read_bytes() == b""


def test_endpoint_files(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    shop = tmp_path / "shop"
    section = '[endpoint]\ntoken = "web.token"\ncertificate = "web.crt"\nkey = "web.key"\n'
    change(shop / "party.toml", ("[data]", f"{section}[data]"))
    complaints = []
    for name, content in (("web.token", "0" * 32), ("web.crt", "none"), ("", "")):
        (found,) = failures(local)
        assert (found.what, found.code) == ("endpoint", 3)
        complaints.append(found.text)
        if name:
            (shop / name).write_text(content)
    assert "web.token: No such file or directory" in complaints[0]
    assert "web.crt: no certificate: No such file or directory" in complaints[1]
    assert "web.crt: no certificate: it holds none as PEM text" in complaints[2]
    for days, verdict in ((0, "bad"), (1, "bad"), (2, "doubtful"), (31, "good")):
        for name in ("web.crt", "web.key"):
            (shop / name).unlink(missing_ok=True)
        create_identity("web", shop, valid_days=days)
        used, expiry = (each for each in check(local) if each.what == "endpoint")
        assert used.text.endswith("web.key: can be used")
        assert (expiry.verdict, expiry.code) == (verdict, 6 if verdict == "bad" else 0)
    assert expiry.text.endswith("web.crt expires in 30 days")
    # Only the recipient's endpoint is checked.
    change(tmp_path / "bank" / "party.toml", ("[data]", f"{section}[data]"))
    assert failures(local, "bank") == []


def test_run_in_progress(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    with lock_job(tmp_path / "shop" / "models", "rehearsal"):
        (found,) = failures(local)
    assert "works there for the job" in found.text


def test_service_in_progress(tmp_path: Path) -> None:
    """The port of a service is free while all members are connected."""
    local = prepare(tmp_path)
    with lock_job(tmp_path / "shop" / "models", "rehearsal", "serve"):
        doubtful = [each for each in check(local) if each.verdict == "doubtful"]
        (found,) = [each for each in doubtful if each.what != "clock"]
        assert failures(local) == []
    assert found.what == "service"
    assert f"process {os.getpid()} serves this job" in found.text


def test_expiring_certificate_and_readable_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    change(local.job_path, new_keys(local, "shop", valid_days=20))
    (tmp_path / "shop" / "shop.key").chmod(0o644)
    doubtful = [each.text for each in check(local) if each.what == "keys"][1:]
    renewal = (
        f"expires in 19 days: renew it with `privet keys shop --renew --folder {tmp_path}/shop`"
    )
    assert doubtful[0].endswith(renewal)
    assert "can be read by others" in doubtful[1]
    assert failures(local) == []
    monkeypatch.chdir(tmp_path / "shop")
    assert check(local)[3].text.endswith("renew it with `privet keys shop --renew`")


@pytest.mark.parametrize(
    ("days", "complaint"), [(1, "expires within a day"), (0, "has expired on")]
)
def test_expired_certificate(tmp_path: Path, days: int, complaint: str) -> None:
    local = prepare(tmp_path)
    change(local.job_path, new_keys(local, "shop", valid_days=days))
    (found,) = failures(local)
    assert (found.what, found.code) == ("keys", 6)
    assert complaint in found.text
    assert f"`privet keys shop --renew --folder {tmp_path}/shop`" in found.text


def test_renewal_requires_the_standard_file_names(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    change(local.job_path, new_keys(local, "shop", valid_days=20))
    (tmp_path / "shop" / "shop.key").rename(tmp_path / "shop" / "ours.key")
    change(tmp_path / "shop" / "party.toml", ('"shop.key"', '"ours.key"'))
    texts = [each.text for each in check(local) if each.what == "keys"]
    assert texts[1].endswith(
        "as shop.key and shop.crt in one folder, renew it with `privet keys --renew`"
    )


def test_party_and_dealer_options_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local = prepare(tmp_path)
    party = f"--party={tmp_path}/shop/party.toml"
    for options, complaint in (([], "give --party, or"), ([party, "--dealer"], "give one of them")):
        monkeypatch.setattr(sys, "argv", ["privet", "check", f"--job={local.job_path}", *options])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert ended.value.code == 3
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [True, False])
def test_check_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    local = prepare(tmp_path)
    command = ["privet", "check", f"--job={local.job_path}", f"--party={tmp_path}/shop/party.toml"]
    monkeypatch.setattr(sys, "argv", command + (["--json"] if as_json else []))
    for code in (0, 4):
        if code:
            _duplicate_an_id(local)
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert ended.value.code == code
        output = capsys.readouterr().out
        if as_json:
            verdicts = {each["what"]: each["verdict"] for each in json.loads(output)}
            assert verdicts["data"] == ("bad" if code else "good")
        else:
            assert ("✗ data: " if code else "✓ data: ") in output


@pytest.mark.parametrize(("known", "code"), [(True, 0), (False, 6)])
def test_dealer_check_skips_data(
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
    monkeypatch.setattr(sys, "argv", ["privet", "check", f"--job={local.job_path}", "--dealer"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == code
    output = capsys.readouterr().out
    assert ("✓ keys: " if known else "✗ keys: ") in output
    assert "✓ bank: " in output
    assert "data: " not in output


def with_workers(local: LocalFederation, cluster: str, shards: int = 3) -> list[CheckResult]:
    change(local.job_path, ("[params]", f"shards = {shards}\n\n[params]"))
    change(local.folder / "shop" / "party.toml", ("[data]", f"[cluster]\n{cluster}\n\n[data]"))
    return [each for each in check(local) if each.verdict == "bad" or each.what == "workers"]


@pytest.mark.parametrize(
    ("cluster", "location"),
    [
        ("", "threads of this process"),
        ("local = 1", "1 process on this machine"),
        ("local = 8", "3 processes on this machine"),
    ],
)
def test_worker_location(tmp_path: Path, cluster: str, location: str) -> None:
    (found,) = with_workers(prepare(tmp_path), cluster)
    assert (found.verdict, found.text) == ("good", f"3 shards, in {location}")


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
def test_unusable_workers(
    tmp_path: Path, cluster: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "scheduler" in cluster:
        pytest.importorskip("distributed")
        monkeypatch.setattr(executors, "_SCHEDULER_TIMEOUT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = cluster.replace("{port}", str(server.getsockname()[1]))
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


def test_dealer_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    change(local.job_path, ("[params]", "shards = 2\n\n[params]"))
    folder = local.folder / "dealer"
    (folder / "cluster.toml").write_text("local = 1\nports = [1, 1]\n")
    monkeypatch.chdir(folder)
    command = [
        "privet",
        "check",
        "--dealer",
        "--job",
        str(local.job_path),
        "--cluster",
        "cluster.toml",
    ]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 6


def test_disk_space_is_measured_before_the_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the table can use disk space temporarily."""
    local, read, usage = prepare(tmp_path), LocalTable.read, shutil.disk_usage
    calls = []

    def read_table(party: PartyConfig, job: Job, restart: bool) -> LocalTable:
        calls.append("reading")
        return read(party, job, restart)

    def get_disk_usage(path: Path) -> object:
        calls.append(Path(path).name)
        return usage(path)

    monkeypatch.setattr(LocalTable, "read", read_table)
    monkeypatch.setattr(shutil, "disk_usage", get_disk_usage)
    assert not failures(local)
    before = calls[: calls.index("reading")]
    assert {"models", Path(tempfile.gettempdir()).name} <= set(before)
    assert Path(tempfile.gettempdir()).name not in calls[len(before) :]
