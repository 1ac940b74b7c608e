"""Sessions in the audit log, and `privet audit`, run as processes."""

from __future__ import annotations

import json
from pathlib import Path

from privet.config.job import Job
from privet.storage.journal import AuditLog
from tests.federation.harness import change, prepare
from tests.test_cli import privet


def test_every_session_is_recorded(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    for name in local.party_names:
        change(tmp_path / name / "party.toml", ("\n[data]", 'audit = "audit.log"\n\n[data]'))
    log = tmp_path / "shop" / "audit.log"
    dealer_log = tmp_path / "dealer" / "audit.log"
    single = local.start_process("shop", "train", "--wait=0.5")
    single.communicate(timeout=60)
    running = {name: local.start_process(name, "train") for name in local.party_names}
    running["dealer"] = local.start_process("dealer", "train", f"--audit={dealer_log}")
    for process in running.values():
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    job = Job.read(local.job_path)
    failed, failure, began, met, ended = AuditLog(log).iter_records()
    assert (failed["event"], failed["command"], failed["job"]) == ("began", "train", "rehearsal")
    assert (failure["outcome"]["code"], failure["outcome"]["error"]) == (7, "PeerLostError")
    assert failure["ledger"] is None
    assert (began["name"], began["digest"]) == ("shop", job.digest)
    assert met["peers"] == {n: job.get_entry(n).fingerprint for n in ("dealer", "bank")}
    assert ended["outcome"] == {"code": 0}
    report = json.loads(local.get_report_path("shop", "train").read_text())
    assert ended["ledger"] == report["reveals"]
    assert len({record["session"] for record in (began, met, ended)}) == 1
    assert [each["event"] for each in AuditLog(dealer_log).iter_records()] == [
        "began",
        "met",
        "ended",
    ]

    verified = privet("audit", "verify", str(log))
    assert (verified.returncode, verified.stdout.strip()) == (0, AuditLog(log).verify().last_digest)
    shown = privet("audit", "show", str(log)).stdout.splitlines()
    assert "train as shop, job rehearsal" in shown[0]
    assert "with 7: bank: not reached" in shown[1]
    assert "well; revealed: " in shown[4]
    assert "split feature to bank, shop: 2" in shown[4]
    change(log, ("PeerLostError", "NothingAtAll"))
    assert privet("audit", "show", str(log)).returncode == 4
    noted = privet("audit", "verify", f"--head={verified.stdout.strip()}", str(dealer_log))
    assert noted.returncode == 4
    assert "no line has the digest" in noted.stderr
