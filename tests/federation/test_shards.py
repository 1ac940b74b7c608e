"""Federations with sharded rows, and workers in threads, processes or Dask over TLS."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from privet.arithmetic.shares import Share
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import DataError, ParameterError, PeerError, UnavailableError
from privet.experiments.local_federation import LocalFederation, find_free_ports
from privet.federation.cluster import executors
from privet.federation.cluster.executors import ThreadExecutor
from privet.federation.cluster.pool import load_no_rows
from privet.federation.cluster.worker import WorkerLaunch, create_temporary_identity, run_workers
from privet.federation.commands import write_party_shards
from privet.federation.monitoring.events import Event
from privet.federation.monitoring.report import PartyReport
from privet.federation.preflight import forecast_training
from privet.protocols.masked.sharding import MaskedShardWorker
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.workers import Command
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.tls import create_identity
from tests.federation.harness import (
    align,
    change,
    common_rows,
    model_of,
    run,
    train_in_plaintext,
)
from tests.federation.harness import (
    prepare as prepare_whole,
)
from tests.federation.test_training import plain_model, same_splits


def prepare(folder: Path, shards: int = 3, **values: object) -> LocalFederation:
    """Write the files of a federation with rows in shards."""
    local = prepare_whole(folder, **values)  # type: ignore[arg-type]
    change(local.job_path, ("[params]", f"shards = {shards}\n\n[params]"))
    return local


def check_costs(local: LocalFederation, reports: Sequence[PartyReport]) -> None:
    """Check that the traffic of coordinators and workers is as estimated."""
    estimate = forecast_training(
        Job.read(local.job_path), 40, [3, 2], cut_counts=(7, 7, 7, 7, 7)
    ).estimate
    assert {report.rounds for report in reports} == {estimate.rounds}
    assert sum(report.bytes_sent for report in reports) == estimate.online_bytes
    assert sum(report.bytes_from_dealer for report in reports) == estimate.offline_bytes


def check_progress(report: PartyReport, events: Sequence[Event]) -> None:
    """Check that the tables' events include the workers' traffic, the last one all of it."""
    (started,) = (event.text for event in events if event.kind == "started")
    assert " MB of memory a worker, " in started
    tables = [event for event in events if event.kind == "table"]
    for key in ("rounds", "bytes_sent", "bytes_from_dealer"):
        counts = [event.fields[key] for event in tables]
        assert counts == sorted(set(counts))
        assert counts[-1] == getattr(report, key)
    assert f"{report.bytes_sent / 1e6:,.1f} MB sent" in tables[-1].text


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_training_in_threads(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path, task=task)
    outcome = run(local, "train")
    found = outcome.checked()
    assert same_splits(model_of(local), plain_model(local))
    reports = [found[name][0] for name in local.party_names]
    check_costs(local, reports)
    for report in reports:
        check_progress(report, outcome.events[report.party])
    progress = [
        [event.fields["by_workers"] for event in outcome.events[name] if event.kind == "progress"]
        for name in local.party_names
    ]
    assert sum(last["sent"] for *_, last in progress) > 0
    assert len({sum(last[key] for *_, last in progress) for key in ("sent", "received")}) == 1
    assert len(list((tmp_path / "bank" / "models" / "rehearsal.checkpoints").glob("*.shard?"))) == 3
    run(local, "predict").checked()


@pytest.mark.parametrize("dealers", [1, 3])
def test_validation_rows_at_the_end(tmp_path: Path, dealers: int) -> None:
    """Workers predict and explain validation rows, at the estimated cost."""
    local = prepare(tmp_path, dealers=dealers)
    settings = 'explain = "feature"\nreveal_validation = true\nreveal_importances = true\n'
    change(local.job_path, ("\n[params]\n", f"{settings}\n[params]\nvalidation = 0.25\n"))
    found = run(local, "train").checked()
    reports = [found[name][0] for name in local.party_names]
    check_costs(local, reports)
    validation = reports[-1].validation
    assert validation.metrics["log_loss"] == pytest.approx(validation.losses[-1], abs=2e-3)
    assert set(validation.importances) == set("abcde")
    disclosures = {reveal.what: reveal.count for reveal in reports[-1].reveals}
    assert disclosures["predictions of validation rows"] == 10


def test_three_dealers_and_alignment(tmp_path: Path) -> None:
    local = prepare(tmp_path / "aligned", 2, names=("bank", "club", "shop"))
    align(local)
    run(local, "train").checked()
    assert same_splits(model_of(local), train_in_plaintext(local, common_rows(local)))
    local = prepare(tmp_path / "three", 2, dealers=3)
    run(local, "train").checked()
    assert same_splits(model_of(local), plain_model(local))


@pytest.mark.parametrize("owner", ["bank", "shop", "dealer"])
def test_failed_worker_ends_the_run_and_the_same_commands_resume(
    tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members name the worker's owner, and training resumes from the common checkpoint."""
    local = prepare(tmp_path, tables=4)
    original = MaskedShardWorker.execute
    names = {"bank": 0, "shop": 1, "dealer": -1}

    def fail_at_table_2(self: MaskedShardWorker, command: Command) -> list[Share]:
        is_local = self._runtime.index == names[owner] and isinstance(self._runtime, Party | Dealer)
        if is_local and command.name == "begin table" and command.numbers[0] == 2:
            raise OSError("this machine is on fire")
        return original(self, command)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedShardWorker, "execute", fail_at_table_2)
        found = run(local, "train")
    assert set(found.errors) == {"bank", "shop", "dealer"}
    messages = {name: str(error) for name, error in found.errors.items()}
    assert all(isinstance(error, PeerError) for error in found.errors.values())
    assert [name for name in names if name != owner and owner not in messages[name]] == [], messages
    assert "on fire" in str(found.errors[owner])
    assert max(found.seconds.values()) < 20
    found = run(local, "train")
    resumed = {found.checked()[name][0].resumed_from for name in local.party_names}
    assert len(resumed) == 1
    assert resumed <= (
        {0, 1, 2} if owner == "dealer" else {1, 2}
    )  # the dealer is ahead of the participants
    assert same_splits(model_of(local), plain_model(local))


def test_killed_worker_is_named_although_peers_end_first(tmp_path: Path) -> None:
    """Peers notice through their workers, and end before the coordinator checks its own."""
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 1\n\n[data]"))

    before = multiprocessing.active_children()

    def kill(event: Event) -> None:
        if event.kind == "started":
            (process,) = (p for p in multiprocessing.active_children() if p not in before)
            process.kill()
            time.sleep(3)

    found = run(local, "train", handlers={"bank": kill}, wait=60)
    assert "worker" in str(found.errors["bank"])
    assert all("bank" in str(found.errors[name]) for name in ("shop", "dealer"))


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_all_members_name_the_owner_and_shard_of_a_killed_worker(
    tmp_path: Path, shard: int
) -> None:
    """The coordinator and its other workers end as well, but are not the cause."""
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 3\n\n[data]"))

    before = multiprocessing.active_children()

    def kill(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 1:
            workers = [p for p in multiprocessing.active_children() if p not in before]
            sorted(workers, key=lambda process: process.pid or 0)[shard - 1].kill()

    found = run(local, "train", handlers={"bank": kill}, wait=60)
    messages = {name: str(error) for name, error in found.errors.items()}
    assert messages["bank"].startswith(
        f"our worker for shard {shard}, in 3 processes on this machine:"
    )
    for name in ("shop", "dealer"):
        assert found.errors[name].peer == "bank", messages  # type: ignore[attr-defined]
        assert (
            f"its worker in shard {shard}" in messages[name]
            or f"its worker{shard}" in messages[name]
        )
    stopped = [event.text for event in found.events["shop"] if event.kind == "stopped"]
    assert stopped == [
        "1 of 3 tables is kept: start the same commands again, without --restart, and they go on "
        "from what all have"
    ]


@pytest.mark.parametrize("one", [True, False])
def test_workers_listen_on_the_configured_ports(tmp_path: Path, one: bool) -> None:
    """One port for three workers is not enough, which is reported immediately."""
    local = prepare(tmp_path)
    first, *_ = ports = sorted(find_free_ports(20))
    last = first if one else ports[-1]
    text = f"[cluster]\nlocal = 1\nports = [{first}, {last}]\n\n[data]"
    change(local.folder / "bank" / "party.toml", ("[data]", text))
    found = run(local, "train", wait=60)
    if not one:
        found.checked()
        return
    assert "cluster.ports: no port" in str(found.errors["bank"])
    assert max(found.seconds.values()) < 20


def test_failure_of_a_peer_ends_the_wait_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker connects, and one member cannot start its workers."""
    first_call = threading.Semaphore(1)

    def fail_first(*_: object) -> None:
        if first_call.acquire(blocking=False):
            raise UnavailableError("there is no place")

    monkeypatch.setattr(ThreadExecutor, "submit", fail_first)
    found = run(prepare(tmp_path), "train", wait=60)
    kinds = sorted(type(error).__name__ for error in found.errors.values())
    assert kinds == ["PeerLostError", "PeerLostError", "UnavailableError"]
    assert max(found.seconds.values()) < 20  # less than the timeout for workers


def test_damaged_checkpoint_of_one_shard(tmp_path: Path) -> None:
    """Training resumes from the latest checkpoint that is intact in all shards."""
    local = prepare(tmp_path, tables=4)

    def stop(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 3:
            raise KeyboardInterrupt

    assert run(local, "train", handlers={"bank": stop}).errors
    folder = tmp_path / "bank" / "models" / "rehearsal.checkpoints"
    newest = max(folder.glob("*.shard1"))
    assert newest.name.startswith("00003")
    content = bytearray(newest.read_bytes())
    content[-10] ^= 1
    newest.write_bytes(bytes(content))
    found = run(local, "train")
    assert {found.checked()[name][0].resumed_from for name in local.party_names} == {2}
    warned = [event.text for event in found.events["bank"] if event.kind == "warning"]
    assert any("shard1" in text for text in warned)
    assert same_splits(model_of(local), plain_model(local))


def test_shards_do_not_support_offline_preprocessing(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", 'correlations = "x"\n[data]'))
    error = run(local, "train").errors["bank"]
    assert isinstance(error, ParameterError)
    assert "nothing is dealt ahead for rows in shards" in str(error)


def test_members_must_agree_on_the_shard_count(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    other = tmp_path / "other.toml"
    other.write_text(local.job_path.read_text().replace("shards = 3", "shards = 2"))
    found = run(local, "train", jobs={"bank": other})
    assert all("shards" in str(error) for error in found.errors.values())
    assert len(found.errors) == 3
    other.write_text(local.job_path.read_text().replace("shards = 3", ""))
    found = run(local, "train", jobs={"bank": other})
    assert "shards: 1 here, 3 at shop and at dealer" in str(found.errors["bank"])


def test_unauthenticated_worker_is_rejected(tmp_path: Path) -> None:
    """A worker without the key that the coordinator created is rejected."""
    coordinator, _, _ = create_temporary_identity("head", tmp_path)
    worker, _, _ = create_temporary_identity("worker1", tmp_path)
    (tmp_path / "other").mkdir()
    _, key, certificate = create_temporary_identity("worker1", tmp_path / "other")
    with listen() as listener:
        coordinator_member = Member(
            "head", "127.0.0.1", listener.getsockname()[1], coordinator.fingerprint
        )
        launch = WorkerLaunch(
            0, coordinator_member, bytes(32), key, certificate, "127.0.0.1", "", None, 2.0
        )
        intruder = threading.Thread(target=run_workers, args=([launch], load_no_rows), daemon=True)
        intruder.start()
        members = [coordinator_member, Member("worker1", "", 0, worker.fingerprint)]
        with pytest.raises(PeerError, match="worker1"):
            connect_members(
                "head", members, listener, session_id=bytes(32), identity=coordinator, timeout=1.5
            )
        intruder.join(10)
        assert not intruder.is_alive()


def test_worker_processes_read_their_rows(tmp_path: Path) -> None:
    """The bank has two processes for three shards, the shop and the dealer have threads."""
    local = prepare(tmp_path, 3, names=("bank", "shop"))
    align(local)
    party = local.folder / "bank" / "party.toml"
    change(party, ("[data]", "[cluster]\nlocal = 2\n\n[data]"))
    found = run(local, "train", wait=60)
    reports = {name: found.checked()[name][0] for name in local.party_names}
    assert same_splits(model_of(local), train_in_plaintext(local, common_rows(local)))
    # The memory of worker processes is reported separately, that of threads with the process.
    peak = reports["bank"].worker_peak_rss_mb
    assert peak is not None
    assert 50 < peak != reports["bank"].peak_rss_mb
    assert reports["shop"].worker_peak_rss_mb is None
    locations = [event.fields["where"] for event in found.events["bank"] if event.kind == "workers"]
    assert locations == ["2 processes on this machine"]


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scheduler with two workers, in threads of this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=4, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.filterwarnings("ignore")
def test_workers_on_dask(tmp_path: Path, dask: str) -> None:
    local = prepare(tmp_path, 3)
    party = local.folder / "shop" / "party.toml"
    text = f'[cluster]\nscheduler = "{dask}"\nadvertise = "127.0.0.1"\n\n[data]'
    change(party, ("[data]", text))
    found = run(local, "train", wait=60)
    found.checked()
    assert same_splits(model_of(local), plain_model(local))
    locations = [event.fields["where"] for event in found.events["shop"] if event.kind == "workers"]
    assert locations == [f"Dask workers of {dask}"]


def test_unreachable_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_SCHEDULER_TIMEOUT_SECONDS", 1.0)
    local = prepare(tmp_path)
    create_identity("dask", tmp_path)
    party = local.folder / "shop" / "party.toml"
    keys = 'ca = "../dask.crt"\ncertificate = "../dask.crt"\nkey = "../dask.key"'
    change(party, ("[data]", f'[cluster]\nscheduler = "tls://127.0.0.1:1"\n{keys}\n\n[data]'))
    found = run(local, "train")
    assert isinstance(found.errors["shop"], UnavailableError)
    assert "tls://127.0.0.1:1" in str(found.errors["shop"])
    assert all("shop" in str(found.errors[name]) for name in ("bank", "dealer"))


def test_table_changed_after_the_coordinator_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    party = local.folder / "bank" / "party.toml"
    change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    table = local.folder / "bank" / "train.csv"

    def swap(event: Event) -> None:
        if event.kind == "connected":
            header, *lines = table.read_text().splitlines()
            table.write_text("\n".join([header, *reversed(lines)]) + "\n")

    found = run(local, "train", handlers={"bank": swap}, wait=60)
    assert isinstance(found.errors["bank"], DataError)
    assert "shard 1" in str(found.errors["bank"])
    assert all("bank" in str(found.errors[name]) for name in ("shop", "dealer"))
    assert max(found.seconds.values()) < 30  # less than the timeout for its worker


def test_file_deleted_after_the_coordinator_read_it(tmp_path: Path) -> None:
    """Workers of other shards detect it, too; the error names the table, not a worker."""
    local = prepare(tmp_path)
    party, folder = local.folder / "bank" / "party.toml", local.folder / "bank" / "shards"
    write_party_shards(PartyConfig.load(party), Job.read(local.job_path), folder, 3)
    change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"), ('"train.csv"', '"shards"'))

    def lose(event: Event) -> None:
        if event.kind == "connected":
            (folder / "00002-of-00003.parquet").unlink()

    found = run(local, "train", handlers={"bank": lose}, wait=60)
    assert isinstance(found.errors["bank"], DataError)
    assert f"{folder}: 1 of 3 files is missing" in str(found.errors["bank"])
    assert all("bank" in str(found.errors[name]) for name in ("shop", "dealer"))


@pytest.mark.parametrize(
    ("aligned", "local_workers", "explain"),
    [
        (False, False, False),
        (False, False, True),
        (True, True, True),
        (True, True, False),
    ],
)
def test_large_batches_are_predicted_in_shards(
    tmp_path: Path,
    aligned: bool,
    local_workers: bool,
    explain: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Predictions are identical, explained or not, and the report contains the disclosures."""
    local = prepare(tmp_path, 3)
    if explain:
        change(local.job_path, ("\n[params]", 'explain = "feature"\n\n[params]'))
    if aligned:
        align(local)
    run(local, "train").checked()
    if local_workers:
        party = local.folder / "bank" / "party.toml"
        change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    explain_at = (local.recipient,) if explain else ()
    _, expected = run(local, "predict", explain=explain_at).checked()["shop"]
    monkeypatch.setattr("privet.boosting.sharding.MIN_SHARDED_ROWS", 1)
    found = run(local, "predict", wait=60, explain=explain_at)
    report, predictions = found.checked()["shop"]
    with_memory = [
        found.results[name][0].worker_peak_rss_mb is not None for name in local.party_names
    ]
    assert with_memory == [local_workers, False]
    assert [event.kind for event in found.events["shop"]].count("workers") == 1
    assert predictions.ids.tolist() == expected.ids.tolist()
    assert predictions.to_csv() == expected.to_csv()
    disclosures = {reveal.what: reveal.count for reveal in report.reveals}
    rows = len(expected.values)
    assert disclosures["predictions"] == rows
    assert disclosures.get("contributions and base") == (5 * rows + 1 if explain else None)


def test_estimate_for_each_machine(tmp_path: Path) -> None:
    job = Job.read(prepare(tmp_path, shards=4).job_path)
    found = forecast_training(job, 400_000, [10, 5]).to_dict(5.0, 100.0)
    whole = forecast_training(job.model_copy(update={"shards": 1}), 400_000, [10, 5]).to_dict(
        5.0, 100.0
    )
    assert found["memory_of_head"] < found["memory"] < whole["memory"]
    assert found["bytes_of_orders"] > 8 * 400_000  # the row numbers, and shares of sums
    assert (whole["memory_of_head"], whole["bytes_of_orders"]) == (0, 0)
    assert found["bytes_on_disk_for_a_while"] == 2 * whole["bytes_on_disk_for_a_while"] > 0
    assert found["bytes_of_checkpoints"] == whole["bytes_of_checkpoints"] > 8 * 400_000
