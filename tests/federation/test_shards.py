"""Federations whose rows are in shards: everybody's workers where it likes, over TLS."""

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
    model_in_the_clear,
    model_of,
    run,
)
from tests.federation.harness import (
    prepare as prepare_whole,
)
from tests.federation.test_training import plain_model, same_tests


def prepare(folder: Path, shards: int = 3, **values: object) -> LocalFederation:
    """Write the files of a federation with rows in shards."""
    local = prepare_whole(folder, **values)  # type: ignore[arg-type]
    change(local.job_path, ("[params]", f"shards = {shards}\n\n[params]"))
    return local


def check_costs(local: LocalFederation, reports: Sequence[PartyReport]) -> None:
    """What heads and workers sent together is what was counted."""
    due = forecast_training(
        Job.read(local.job_path), 40, [3, 2], cut_counts=(7, 7, 7, 7, 7)
    ).estimate
    assert {report.rounds for report in reports} == {due.rounds}
    assert sum(report.bytes_sent for report in reports) == due.online_bytes
    assert sum(report.bytes_from_dealer for report in reports) == due.offline_bytes


def check_progress(report: PartyReport, events: Sequence[Event]) -> None:
    """What each table's line counts is what workers did, too: the last one has all of it."""
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
    assert same_tests(model_of(local), plain_model(local))
    reports = [found[name][0] for name in local.party_names]
    check_costs(local, reports)
    for report in reports:
        check_progress(report, outcome.events[report.party])
    standing = [
        [event.fields["by_workers"] for event in outcome.events[name] if event.kind == "progress"]
        for name in local.party_names
    ]
    assert sum(last["sent"] for *_, last in standing) > 0
    assert len({sum(last[key] for *_, last in standing) for key in ("sent", "received")}) == 1
    assert len(list((tmp_path / "bank" / "models" / "rehearsal.checkpoints").glob("*.shard?"))) == 3
    run(local, "predict").checked()


@pytest.mark.parametrize("dealers", [1, 3])
def test_validation_rows_at_the_end(tmp_path: Path, dealers: int) -> None:
    """They are predicted and explained by workers, and what that took is what was counted."""
    local = prepare(tmp_path, dealers=dealers)
    terms = 'explain = "feature"\nreveal_validation = true\nreveal_importances = true\n'
    change(local.job_path, ("\n[params]\n", f"{terms}\n[params]\nvalidation = 0.25\n"))
    found = run(local, "train").checked()
    reports = [found[name][0] for name in local.party_names]
    check_costs(local, reports)
    validated = reports[-1].validation
    assert validated.metrics["log_loss"] == pytest.approx(validated.losses[-1], abs=2e-3)
    assert set(validated.importances) == set("abcde")
    told = {reveal.what: reveal.count for reveal in reports[-1].reveals}
    assert told["predictions of validation rows"] == 10


def test_three_dealers_and_alignment(tmp_path: Path) -> None:
    local = prepare(tmp_path / "aligned", 2, names=("bank", "club", "shop"))
    align(local)
    run(local, "train").checked()
    assert same_tests(model_of(local), model_in_the_clear(local, common_rows(local)))
    local = prepare(tmp_path / "three", 2, dealers=3)
    run(local, "train").checked()
    assert same_tests(model_of(local), plain_model(local))


@pytest.mark.parametrize("whose", ["bank", "shop", "dealer"])
def test_a_lost_worker_ends_all_and_the_same_commands_go_on(
    tmp_path: Path, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named by everybody, as whoever's it is; nothing that all shards had is lost."""
    local = prepare(tmp_path, tables=4)
    original = MaskedShardWorker.execute
    names = {"bank": 0, "shop": 1, "dealer": -1}

    def carry_out(self: MaskedShardWorker, order: Command) -> list[Share]:
        mine = self._runtime.index == names[whose] and isinstance(self._runtime, Party | Dealer)
        if mine and order.name == "begin table" and order.numbers[0] == 2:
            raise OSError("this machine is on fire")
        return original(self, order)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedShardWorker, "execute", carry_out)
        found = run(local, "train")
    assert set(found.errors) == {"bank", "shop", "dealer"}
    said = {name: str(error) for name, error in found.errors.items()}
    assert all(isinstance(error, PeerError) for error in found.errors.values())
    assert [who for who in names if who != whose and whose not in said[who]] == [], said
    assert "on fire" in str(found.errors[whose])
    assert max(found.seconds.values()) < 20
    found = run(local, "train")
    resumed = {found.checked()[name][0].resumed_from for name in local.party_names}
    assert len(resumed) == 1
    assert resumed <= ({0, 1, 2} if whose == "dealer" else {1, 2})  # it runs ahead
    assert same_tests(model_of(local), plain_model(local))


def test_a_lost_worker_is_named_though_others_have_ended_before(tmp_path: Path) -> None:
    """They find out from their own workers, and are gone before its head looks at anybody."""
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 1\n\n[data]"))

    before = multiprocessing.active_children()

    def kill(event: Event) -> None:
        if event.kind == "started":
            (process,) = (p for p in multiprocessing.active_children() if p not in before)
            process.kill()
            time.sleep(3)

    found = run(local, "train", tells={"bank": kill}, wait=60)
    assert "worker" in str(found.errors["bank"])
    assert all("bank" in str(found.errors[name]) for name in ("shop", "dealer"))


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_everybody_knows_whose_worker_was_lost_and_in_which_shard(
    tmp_path: Path, shard: int
) -> None:
    """Its head ends, so its other workers do, so others' heads do: that is not where it began."""
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 3\n\n[data]"))

    before = multiprocessing.active_children()

    def kill(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 1:
            workers = [p for p in multiprocessing.active_children() if p not in before]
            sorted(workers, key=lambda process: process.pid or 0)[shard - 1].kill()

    found = run(local, "train", tells={"bank": kill}, wait=60)
    said = {name: str(error) for name, error in found.errors.items()}
    assert said["bank"].startswith(f"our worker for shard {shard}, in 3 processes on this machine:")
    for name in ("shop", "dealer"):
        assert found.errors[name].peer == "bank", said  # type: ignore[attr-defined]
        assert f"its worker in shard {shard}" in said[name] or f"its worker{shard}" in said[name]
    left = [event.text for event in found.events["shop"] if event.kind == "stopped"]
    assert left == [
        "1 of 3 tables is kept: start the same commands again, without --restart, and they go on "
        "from what all have"
    ]


@pytest.mark.parametrize("one", [True, False])
def test_workers_listen_on_the_ports_that_are_open(tmp_path: Path, one: bool) -> None:
    """One port for three workers is not enough: that is said at once."""
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


def test_who_waits_for_workers_hears_of_another_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's workers come, and one of all has no place for any."""
    first = threading.Semaphore(1)

    def place(*_: object) -> None:
        if first.acquire(blocking=False):
            raise UnavailableError("there is no place")

    monkeypatch.setattr(ThreadExecutor, "submit", place)
    found = run(prepare(tmp_path), "train", wait=60)
    kinds = sorted(type(error).__name__ for error in found.errors.values())
    assert kinds == ["PeerLostError", "PeerLostError", "UnavailableError"]
    assert max(found.seconds.values()) < 20  # not as long as workers are waited for


def test_a_damaged_checkpoint_of_one_shard(tmp_path: Path) -> None:
    """The stage before it counts, of which all shards' are whole."""
    local = prepare(tmp_path, tables=4)

    def stop(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 3:
            raise KeyboardInterrupt

    assert run(local, "train", tells={"bank": stop}).errors
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
    assert same_tests(model_of(local), plain_model(local))


def test_nothing_is_dealt_ahead_for_shards(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    change(local.folder / "bank" / "party.toml", ("[data]", 'correlations = "x"\n[data]'))
    error = run(local, "train").errors["bank"]
    assert isinstance(error, ParameterError)
    assert "nothing is dealt ahead for rows in shards" in str(error)


def test_who_has_another_number_of_shards_is_told(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    other = tmp_path / "other.toml"
    other.write_text(local.job_path.read_text().replace("shards = 3", "shards = 2"))
    found = run(local, "train", jobs={"bank": other})
    assert all("shards" in str(error) for error in found.errors.values())
    assert len(found.errors) == 3
    other.write_text(local.job_path.read_text().replace("shards = 3", ""))
    found = run(local, "train", jobs={"bank": other})
    assert "shards: 1 here, 3 at shop and at dealer" in str(found.errors["bank"])


def test_a_stranger_at_the_door_is_refused(tmp_path: Path) -> None:
    """Whoever has another key than the head made does not become its worker."""
    head, _, _ = create_temporary_identity("head", tmp_path)
    worker, _, _ = create_temporary_identity("worker1", tmp_path)
    (tmp_path / "other").mkdir()
    _, key, certificate = create_temporary_identity("worker1", tmp_path / "other")
    with listen() as door:
        at = Member("head", "127.0.0.1", door.getsockname()[1], head.fingerprint)
        summons = WorkerLaunch(0, at, bytes(32), key, certificate, "127.0.0.1", "", None, 2.0)
        stranger = threading.Thread(target=run_workers, args=([summons], load_no_rows), daemon=True)
        stranger.start()
        members = [at, Member("worker1", "", 0, worker.fingerprint)]
        with pytest.raises(PeerError, match="worker1"):
            connect_members("head", members, door, session_id=bytes(32), identity=head, timeout=1.5)
        stranger.join(10)
        assert not stranger.is_alive()


def test_workers_in_processes_read_their_own_rows(tmp_path: Path) -> None:
    """One has two processes for three shards, one threads, and the dealer a process."""
    local = prepare(tmp_path, 3, names=("bank", "shop"))
    align(local)
    party = local.folder / "bank" / "party.toml"
    change(party, ("[data]", "[cluster]\nlocal = 2\n\n[data]"))
    found = run(local, "train", wait=60)
    reports = {name: found.checked()[name][0] for name in local.party_names}
    assert same_tests(model_of(local), model_in_the_clear(local, common_rows(local)))
    # These have memory of their own; threads have that of the process, which is reported.
    peak = reports["bank"].worker_peak_rss_mb
    assert peak is not None
    assert 50 < peak != reports["bank"].peak_rss_mb
    assert reports["shop"].worker_peak_rss_mb is None
    where = [event.fields["where"] for event in found.events["bank"] if event.kind == "workers"]
    assert where == ["2 processes on this machine"]


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
    assert same_tests(model_of(local), plain_model(local))
    where = [event.fields["where"] for event in found.events["shop"] if event.kind == "workers"]
    assert where == [f"Dask workers of {dask}"]


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_table_that_changed_since_the_head_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    party = local.folder / "bank" / "party.toml"
    change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    table = local.folder / "bank" / "train.csv"

    def swap(event: Event) -> None:
        if event.kind == "connected":
            head, *lines = table.read_text().splitlines()
            table.write_text("\n".join([head, *reversed(lines)]) + "\n")

    found = run(local, "train", tells={"bank": swap}, wait=60)
    assert isinstance(found.errors["bank"], DataError)
    assert "shard 1" in str(found.errors["bank"])
    assert all("bank" in str(found.errors[name]) for name in ("shop", "dealer"))
    assert max(found.seconds.values()) < 30  # not as long as groups would wait for its worker


def test_a_file_that_is_lost_since_the_head_read_it(tmp_path: Path) -> None:
    """Whoever works on another shard finds it, too: the table is not whole, and no worker lost."""
    local = prepare(tmp_path)
    party, folder = local.folder / "bank" / "party.toml", local.folder / "bank" / "shards"
    write_party_shards(PartyConfig.load(party), Job.read(local.job_path), folder, 3)
    change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"), ('"train.csv"', '"shards"'))

    def lose(event: Event) -> None:
        if event.kind == "connected":
            (folder / "00002-of-00003.parquet").unlink()

    found = run(local, "train", tells={"bank": lose}, wait=60)
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
    """The same to the last bit, explained or not; and what was revealed is in the report."""
    local = prepare(tmp_path, 3)
    if explain:
        change(local.job_path, ("\n[params]", 'explain = "feature"\n\n[params]'))
    if aligned:
        align(local)
    run(local, "train").checked()
    if local_workers:
        party = local.folder / "bank" / "party.toml"
        change(party, ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    asks = (local.recipient,) if explain else ()
    _, expected = run(local, "predict", explain=asks).checked()["shop"]
    monkeypatch.setattr("privet.boosting.sharding.MIN_SHARDED_ROWS", 1)
    found = run(local, "predict", wait=60, explain=asks)
    report, predictions = found.checked()["shop"]
    with_memory = [
        found.results[name][0].worker_peak_rss_mb is not None for name in local.party_names
    ]
    assert with_memory == [local_workers, False]
    assert [event.kind for event in found.events["shop"]].count("workers") == 1
    assert predictions.ids.tolist() == expected.ids.tolist()
    assert predictions.to_csv() == expected.to_csv()
    told = {reveal.what: reveal.count for reveal in report.reveals}
    rows = len(expected.values)
    assert told["predictions"] == rows
    assert told.get("contributions and base") == (5 * rows + 1 if explain else None)


def test_what_is_foreseen_of_each_machine(tmp_path: Path) -> None:
    job = Job.read(prepare(tmp_path, shards=4).job_path)
    found = forecast_training(job, 400_000, [10, 5]).to_dict(5.0, 100.0)
    whole = forecast_training(job.model_copy(update={"shards": 1}), 400_000, [10, 5]).to_dict(
        5.0, 100.0
    )
    assert found["memory_of_head"] < found["memory"] < whole["memory"]
    assert found["bytes_of_orders"] > 8 * 400_000  # the numbers of rows, and shares of sums
    assert (whole["memory_of_head"], whole["bytes_of_orders"]) == (0, 0)
    assert found["bytes_on_disk_for_a_while"] == 2 * whole["bytes_on_disk_for_a_while"] > 0
    assert found["bytes_of_checkpoints"] == whole["bytes_of_checkpoints"] > 8 * 400_000
