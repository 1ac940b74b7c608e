"""Workers on real Dask clusters: processes that communicate over TLS and can be killed."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from privet.errors import PeerError, UnavailableError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from tests.federation.dask_cluster import DaskCluster
from tests.federation.harness import change, model_of, run
from tests.federation.test_shards import prepare
from tests.federation.test_training import plain_model, same_splits

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TABLES = 12
SECONDS = 15.0
"""All roles must end within this time, on a busy machine."""


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, DaskCluster]]:
    """The shop has a cluster of two workers, and the dealer one of one."""
    pytest.importorskip("distributed")
    with (
        DaskCluster(tmp_path / "shop cluster", 2) as shop,
        DaskCluster(tmp_path / "dealer cluster", 1) as dealer,
    ):
        yield {"shop": shop, "dealer": dealer}


@pytest.fixture
def local(tmp_path: Path, clusters: dict[str, DaskCluster]) -> LocalFederation:
    """A federation whose bank has threads."""
    local = prepare(tmp_path / "federation", 3, tables=TABLES)
    text = f"[cluster]\n{clusters['shop'].as_toml()}\n[data]"
    change(local.folder / "shop" / "party.toml", ("[data]", text))
    (local.folder / "dealer" / "cluster.toml").write_text(clusters["dealer"].as_toml())
    return local


class ProcessKiller:
    """Kill a process when the third or a later table is trained, and record the time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._at = math.inf

    def __call__(self, event: Event) -> None:
        """Handle an event of a role."""
        if event.kind == "table" and event.fields["table"] >= 3 and self._at == math.inf:
            self._at = time.monotonic()
            self._process.kill()
            self._process.wait()

    @property
    def seconds(self) -> float:
        """Return the seconds since the process was killed."""
        return time.monotonic() - self._at


def test_killed_workers_are_named_and_the_same_commands_resume(
    local: LocalFederation, clusters: dict[str, DaskCluster]
) -> None:
    for owner, cluster in clusters.items():
        killer = ProcessKiller(cluster.workers.pop())
        found = run(local, "train", handlers={"bank": killer}, wait=60)
        assert 0 < killer.seconds < SECONDS
        assert set(found.errors) == {"bank", "shop", "dealer"}
        assert all(isinstance(error, PeerError) for error in found.errors.values())
        messages = {name: str(error) for name, error in found.errors.items()}
        assert "worker" in messages[owner], messages
        assert all(owner in text for name, text in messages.items() if name != owner), messages
        cluster.workers.append(cluster.start_worker())
        cluster.await_workers()
    found = run(local, "train", wait=60)
    assert {found.checked()[name][0].resumed_from for name in local.party_names} <= {
        *range(1, TABLES)
    }
    assert same_splits(model_of(local), plain_model(local))
    for name, cluster in clusters.items():
        locations = [
            event.fields["where"] for event in found.events[name] if event.kind == "workers"
        ]
        assert locations == [f"Dask workers of {cluster.address}"]


def test_killed_scheduler_ends_its_workers(
    local: LocalFederation, clusters: dict[str, DaskCluster]
) -> None:
    """Training continues until the workers notice, after about half a minute."""
    change(local.job_path, (f"tables = {TABLES}", "tables = 1000"))
    killer = ProcessKiller(clusters["shop"].scheduler)
    found = run(local, "train", handlers={"bank": killer}, wait=60, join_timeout=180)
    assert set(found.errors) == {"bank", "shop", "dealer"}
    messages = {name: str(error) for name, error in found.errors.items()}
    assert isinstance(found.errors["shop"], UnavailableError), messages
    assert f"{clusters['shop'].address} has gone" in messages["shop"]
    assert "shop" in messages["bank"], messages
    assert "shop" in messages["dealer"], messages
    assert max(found.seconds.values()) - min(found.seconds.values()) < SECONDS
    clusters["shop"].start()
    resumed = run(local, "train", handlers={"bank": stop_at_a_table}, wait=60).events["shop"]
    (tables,) = [event.fields["tables"] for event in resumed if event.kind == "resumed"]
    assert isinstance(tables, int)
    assert tables >= 3


def stop_at_a_table(event: Event) -> None:
    """Interrupt a resumed training run at its first table."""
    if event.kind == "table":
        raise KeyboardInterrupt
