"""A small federation for tests: real files, keys and TLS, every role a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privet.boosting.binning import bucket_columns
from privet.boosting.model import Model
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_locally
from privet.config.job import Job
from privet.config.party import ClusterConfig, PartyConfig
from privet.data.frame import Frame, Ids
from privet.data.partition import split_frame
from privet.data.reader import read_frame
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster.pool import BatchSource
from privet.federation.commands import run_alignment
from privet.federation.dealer import run_dealer_session
from privet.federation.monitoring.events import Event, EventHandler, discard_event
from privet.federation.offline import generate_preprocessing_files, make_anonymous_features
from privet.federation.prediction.export import export_part
from privet.federation.prediction.prediction import load_local_part, predict_batch
from privet.federation.serving.model import ServedModel
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.serving.server import ServiceRunner
from privet.federation.session.session import open_session
from privet.federation.training import run_training
from privet.filesystem import lock_job
from privet.runtime.run import DEALER_NAME
from privet.storage.model_part import load_part
from privet.transport.tls import load_identity

NAMES = ("bank", "shop")
N_SAMPLES = 40


def rows(seed: int, n_samples: int = N_SAMPLES, task: str = "classification") -> Frame:
    """Return five columns, one with ties and missing values, and a label that depends on them."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(5, n_samples))
    columns[1] = np.round(columns[1])
    columns[1, rng.random(n_samples) < 0.2] = np.nan
    label = columns[0] + np.nan_to_num(columns[1]) - columns[4]
    if task == "classification":
        label = (label > 0).astype(np.float64)
    ids = Ids.from_texts(f"{seed}-{number}" for number in range(n_samples))
    return Frame(("a", "b", "c", "d", "e"), columns, ids, label)


def prepare(
    folder: Path,
    tables: int = 3,
    names: tuple[str, ...] = NAMES,
    task: str = "classification",
    dealers: int = 1,
    **job: str,
) -> LocalFederation:
    """Write the files of a federation that learns to classify, or a number."""
    local = LocalFederation(folder, names, dealers)
    local.write_tables(rows(1, task=task), rows(2, 7, task))
    params = {"tables": tables, "depth": 2, "buckets": 8, "learning_rate": 1.0}
    local.write_configuration(task, params, **job)
    return local


def align(local: LocalFederation, minimum: int = 3, **ids: Any) -> None:
    """Let a job align rows, and give everybody rows of its own, in an order of its own.

    Of the rows of a table, each participant lacks two, which all others have.
    """
    terms = "".join(f"{key} = {value}\n" for key, value in {"minimum": minimum, **ids}.items())
    change(local.job_path, ("[params]", f"align = true\n\n[ids]\n{terms}\n[params]"))
    for number, name in enumerate(local.party_names):
        for file in ("train.csv", "new.csv"):
            path = local.folder / name / file
            head, *lines = path.read_text().splitlines()
            _, _, *others = lines[2 * number :] + lines[: 2 * number]
            alone = [f"{name} {k},{line.split(',', 1)[1]}" for k, line in enumerate(others[:3])]
            mixed = np.random.default_rng(number).permutation([*others, *alone]).tolist()
            path.write_text("\n".join([head, *mixed]) + "\n")


def common_rows(local: LocalFederation, file: str = "train.csv") -> dict[str, Frame]:
    """Return the rows that all have, in the clear: each participant's, in one order."""
    found = {}
    for name in local.party_names:
        party = PartyConfig.load(local.folder / name / "party.toml")
        label = party.data.label if file == "train.csv" else None
        path = local.folder / name / file
        found[name] = read_frame(path, id="id", label=label)
    keys = [set(frame.ids.tolist()) for frame in found.values() if frame.ids is not None]
    common = sorted(set.intersection(*keys))
    for name, frame in found.items():
        assert frame.ids is not None
        place = {key: row for row, key in enumerate(frame.ids.tolist())}
        found[name] = frame.take(np.array([place[key] for key in common]))
    return found


def deal_for(
    local: LocalFederation,
    done: int = 0,
    samples: int = N_SAMPLES,
    cuts: tuple[int, ...] | None = None,
    monotone: tuple[int, ...] | None = None,
) -> None:
    """Deal ahead for a federation, and hand everybody its file."""
    job, dealer = Job.read(local.job_path), local.folder / DEALER_NAME
    identity = load_identity(dealer / "dealer.key", dealer / "dealer.crt")
    folder = dealer / "dealt"
    counts = [len(party.frame.names) for party in split_frame(rows(1), len(local.party_names))]
    if cuts is None and job.cut_disclosure != "hidden":
        cuts = (7,) * sum(counts)
    federation = job.make_training_spec(make_anonymous_features(job, counts), cuts, monotone)
    for path in generate_preprocessing_files(
        job, federation, identity, folder, samples, done, discard_event
    ):
        path.replace(file_of(local, path.stem))


def file_of(local: LocalFederation, name: str) -> Path:
    """Return where a participant expects its correlations, and see that it does."""
    path = local.folder / name / "party.toml"
    if "correlations" not in path.read_text():
        change(path, ("[data]", f'correlations = "{name}.correlations"\n[data]'))
    return path.with_name(f"{name}.correlations")


def change(path: Path, *changes: tuple[str, str]) -> None:
    """Replace text in a file, which must be there."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@dataclass
class Run:
    """What came out of each role: a result, or an error."""

    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """When each role ended, since those who start last have started."""

    def checked(self) -> dict[str, Any]:
        """Return the results, if all have one."""
        for name, error in self.errors.items():
            raise AssertionError(f"{name} failed") from error
        return self.results


def run(
    local: LocalFederation,
    verb: str,
    *,
    jobs: Mapping[str, Path] | None = None,
    wait: float = 20.0,
    tells: Mapping[str, EventHandler] | None = None,
    absent: tuple[str, ...] = (),
    queue: RequestQueue | None = None,
    restart: bool = False,
    last: tuple[str, ...] = (),
    tables: Mapping[str, str] | None = None,
    explain: tuple[str, ...] = (),
    patience: float = 60.0,
) -> Run:
    """Run a command at everybody, with a job file or new rows of their own if so told.

    Those who start last do so once all others wait to be met. Some may ask for explanations.
    """
    found = Run()
    others = [name for name in local.member_names if name not in (*absent, *last)]
    waiting = {name: threading.Event() for name in others}
    started = time.monotonic()

    def role(name: str) -> Any:
        def tell(event: Event) -> None:
            found.events.setdefault(name, []).append(event)
            if event.kind == "listening" and name in waiting:
                waiting[name].set()
            if tells is not None and name in tells:
                tells[name](event)

        folder = local.folder / name
        job = Job.read((jobs or {}).get(name, local.job_path))
        if name in local.dealer_names:
            keys = str(folder / f"{name}.key"), str(folder / f"{name}.crt")
            with open_session(job, name, *keys, timeout=wait, emit=tell) as seat:
                cluster = folder / "cluster.toml"
                return run_dealer_session(
                    seat, ClusterConfig.load(cluster) if cluster.exists() else None
                )
        party = PartyConfig.load(folder / "party.toml")
        keys = party.key, party.certificate
        with open_session(job, party.name, *keys, timeout=wait, emit=tell) as seat:
            if verb in ("train", "align"):
                with lock_job(party.folder, job.name):
                    if verb == "align":
                        return run_alignment(party, seat)
                    return run_training(party, seat, restart=restart)
            file = load_local_part(party, local.get_part_path(name), None)
            if verb == "export":
                return export_part(file, seat)
            table = folder / (
                "train.csv" if verb == "serve" else (tables or {}).get(name, "new.csv")
            )
            frame = party.read_new_rows(job, file.encoders, table)
            if verb == "serve":
                model = ServedModel(file, frame)
                asked = queue if name == local.recipient else None
                server = ServiceRunner(lambda: model, party.folder, asked, party.cluster)
                server.run_session(seat)
                return server.disclosures
            batch = BatchSource(
                party.make_prediction_table_spec(table), local.get_part_path(name), party.cluster
            )
            return predict_batch(
                file, frame, seat, party.folder, explain=name in explain, source=batch
            )

    def guard(name: str, body: Callable[[str], Any]) -> None:
        nonlocal started
        if name in last:
            assert all(event.wait(20) for event in waiting.values())
            started = time.monotonic()
        try:
            found.results[name] = body(name)
        except BaseException as error:  # noqa: BLE001
            found.errors[name] = error
        found.seconds[name] = time.monotonic() - started

    threads = [
        threading.Thread(target=guard, args=(name, role), daemon=True)
        for name in local.member_names
        if name not in absent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
        assert not thread.is_alive(), "a role hangs"
    return found


def model_of(local: LocalFederation) -> Model:
    """Return the model that the participants' parts make together."""
    return join_parts([load_part(local.get_part_path(name)).part for name in local.party_names])


def model_in_the_clear(local: LocalFederation, frames: Mapping[str, Frame]) -> Model:
    """Return what training in the clear gives on these rows of each participant."""
    label = frames[local.recipient].label
    assert label is not None
    job = Job.read(local.job_path)
    params = job.make_params()
    parties = [bucket_columns(n, f.names, f.columns, params.buckets) for n, f in frames.items()]
    signs = [job.monotone.get(p.owner, {}).get(name, 0) for p in parties for name in p.names]
    return train_locally(parties, label, params, cut_disclosure=job.cut_disclosure, monotone=signs)
