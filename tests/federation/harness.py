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
    """Write the files of a federation for a classification or a regression."""
    local = LocalFederation(folder, names, dealers)
    local.write_tables(rows(1, task=task), rows(2, 7, task))
    params = {"tables": tables, "depth": 2, "buckets": 8, "learning_rate": 1.0}
    local.write_configuration(task, params, **job)
    return local


def align(local: LocalFederation, minimum: int = 3, **ids: Any) -> None:
    """Make a job align rows, and give each participant extra rows in a shuffled order.

    Each participant lacks two rows of each table, which all other participants have.
    """
    settings = "".join(f"{key} = {value}\n" for key, value in {"minimum": minimum, **ids}.items())
    change(local.job_path, ("[params]", f"align = true\n\n[ids]\n{settings}\n[params]"))
    for number, name in enumerate(local.party_names):
        for file in ("train.csv", "new.csv"):
            path = local.folder / name / file
            header, *lines = path.read_text().splitlines()
            _, _, *kept = lines[2 * number :] + lines[: 2 * number]
            extra = [f"{name} {k},{line.split(',', 1)[1]}" for k, line in enumerate(kept[:3])]
            shuffled = np.random.default_rng(number).permutation([*kept, *extra]).tolist()
            path.write_text("\n".join([header, *shuffled]) + "\n")


def common_rows(local: LocalFederation, file: str = "train.csv") -> dict[str, Frame]:
    """Return each participant's common rows in plaintext, in the same order."""
    frames = {}
    for name in local.party_names:
        party = PartyConfig.load(local.folder / name / "party.toml")
        label = party.data.label if file == "train.csv" else None
        path = local.folder / name / file
        frames[name] = read_frame(path, id="id", label=label)
    keys = [set(frame.ids.tolist()) for frame in frames.values() if frame.ids is not None]
    common = sorted(set.intersection(*keys))
    for name, frame in frames.items():
        assert frame.ids is not None
        position = {key: row for row, key in enumerate(frame.ids.tolist())}
        frames[name] = frame.take(np.array([position[key] for key in common]))
    return frames


def preprocess_offline(
    local: LocalFederation,
    done: int = 0,
    samples: int = N_SAMPLES,
    cuts: tuple[int, ...] | None = None,
    monotone: tuple[int, ...] | None = None,
) -> None:
    """Generate preprocessing files, and give each participant its file."""
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
        path.replace(preprocessing_file(local, path.stem))


def preprocessing_file(local: LocalFederation, name: str) -> Path:
    """Return the path of a participant's preprocessing file; set it in party.toml if missing."""
    path = local.folder / name / "party.toml"
    if "correlations" not in path.read_text():
        change(path, ("[data]", f'correlations = "{name}.correlations"\n[data]'))
    return path.with_name(f"{name}.correlations")


def change(path: Path, *changes: tuple[str, str]) -> None:
    """Replace text in a file, which must contain each old text."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@dataclass
class Run:
    """The result or error of each role, with its events."""

    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds until each role ended, since the start of the roles that start last."""

    def checked(self) -> dict[str, Any]:
        """Return the results; raise if a role failed."""
        for name, error in self.errors.items():
            raise AssertionError(f"{name} failed") from error
        return self.results


def run(
    local: LocalFederation,
    verb: str,
    *,
    jobs: Mapping[str, Path] | None = None,
    wait: float = 20.0,
    handlers: Mapping[str, EventHandler] | None = None,
    absent: tuple[str, ...] = (),
    queue: RequestQueue | None = None,
    restart: bool = False,
    last: tuple[str, ...] = (),
    tables: Mapping[str, str] | None = None,
    explain: tuple[str, ...] = (),
    join_timeout: float = 60.0,
) -> Run:
    """Run a command in all roles, with other job files or tables for some roles.

    The roles in `last` start once all other roles listen. The participants in `explain` request
    explanations.
    """
    outcome = Run()
    others = [name for name in local.member_names if name not in (*absent, *last)]
    waiting = {name: threading.Event() for name in others}
    started = time.monotonic()

    def role(name: str) -> Any:
        def emit(event: Event) -> None:
            outcome.events.setdefault(name, []).append(event)
            if event.kind == "listening" and name in waiting:
                waiting[name].set()
            if handlers is not None and name in handlers:
                handlers[name](event)

        folder = local.folder / name
        job = Job.read((jobs or {}).get(name, local.job_path))
        if name in local.dealer_names:
            keys = str(folder / f"{name}.key"), str(folder / f"{name}.crt")
            with open_session(job, name, *keys, timeout=wait, emit=emit) as member:
                cluster = folder / "cluster.toml"
                return run_dealer_session(
                    member, ClusterConfig.load(cluster) if cluster.exists() else None
                )
        party = PartyConfig.load(folder / "party.toml")
        keys = party.key, party.certificate
        with open_session(job, party.name, *keys, timeout=wait, emit=emit) as member:
            if verb in ("train", "align"):
                with lock_job(party.folder, job.name):
                    if verb == "align":
                        return run_alignment(party, member)
                    return run_training(party, member, restart=restart)
            file = load_local_part(party, local.get_part_path(name), None)
            if verb == "export":
                return export_part(file, member)
            table = folder / (
                "train.csv" if verb == "serve" else (tables or {}).get(name, "new.csv")
            )
            frame = party.read_new_rows(job, file.encoders, table)
            if verb == "serve":
                model = ServedModel(file, frame)
                requests = queue if name == local.recipient else None
                server = ServiceRunner(lambda: model, party.folder, requests, party.cluster)
                server.run_session(member)
                return server.disclosures
            batch = BatchSource(
                party.make_prediction_table_spec(table), local.get_part_path(name), party.cluster
            )
            return predict_batch(
                file, frame, member, party.folder, explain=name in explain, source=batch
            )

    def guard(name: str, body: Callable[[str], Any]) -> None:
        nonlocal started
        if name in last:
            assert all(event.wait(20) for event in waiting.values())
            started = time.monotonic()
        try:
            outcome.results[name] = body(name)
        except BaseException as error:  # noqa: BLE001
            outcome.errors[name] = error
        outcome.seconds[name] = time.monotonic() - started

    threads = [
        threading.Thread(target=guard, args=(name, role), daemon=True)
        for name in local.member_names
        if name not in absent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(join_timeout)
        assert not thread.is_alive(), "a role hangs"
    return outcome


def model_of(local: LocalFederation) -> Model:
    """Join the participants' model parts."""
    return join_parts([load_part(local.get_part_path(name)).part for name in local.party_names])


def train_in_plaintext(local: LocalFederation, frames: Mapping[str, Frame]) -> Model:
    """Train in plaintext on these rows of each participant."""
    label = frames[local.recipient].label
    assert label is not None
    job = Job.read(local.job_path)
    params = job.make_params()
    parties = [bucket_columns(n, f.names, f.columns, params.buckets) for n, f in frames.items()]
    signs = [job.monotone.get(p.owner, {}).get(name, 0) for p in parties for name in p.names]
    return train_locally(parties, label, params, cut_disclosure=job.cut_disclosure, monotone=signs)
