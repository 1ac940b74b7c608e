"""Prediction of a batch by one participant, with class names and explanations."""

from __future__ import annotations

import contextlib
import csv
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.boosting.prediction import Explained, answer, tell_unit
from privet.boosting.sharding import Crowd, in_shards
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.data.frame import Frame, Ids
from privet.errors import ModelError, ParameterError, PeerMisbehavedError
from privet.federation.alignment.alignment import (
    alignments_of,
    digest_of,
    find_common,
    refuse_other_ids,
)
from privet.federation.cluster.executors import engine_of
from privet.federation.cluster.pool import Batch, Crew, crew_for_batch, read_batch
from privet.federation.monitoring.report import PartyReport, party_report
from privet.federation.session.agreement import Holding, Statement, agree_on_purpose, agree_on_rows
from privet.federation.session.session import Seat
from privet.filesystem import write_atomically
from privet.objectives.metrics import by_class, likeliest
from privet.runtime.party import Party
from privet.runtime.run import run_party
from privet.schema import quoted
from privet.storage.model_part import PartFile, load_part
from privet.transport.channel import Channel, pack, receive, send, unpack


def tell_classes(runtime: Party, channel: Channel, job: Job, file: PartFile) -> tuple[str, ...]:
    """Return the names of the classes to their holder and to the recipient; none to others.

    Reveals: the names to the recipient, if it is not the active participant, who has them.
    """
    active, recipient = job.names[job.active], job.names[job.recipient_index]
    params = job.hyper_parameters()
    if not params.objective.has_classes or active == recipient:
        return file.classes
    runtime.ledger.record("names of the classes", (recipient,), 1, "predict")
    if channel.name == active:
        send(channel, [recipient], pack(file.classes))
    if channel.name != recipient:
        return file.classes
    try:
        names = unpack(receive(channel, active))
    except ValueError:
        names = []
    if len(names) != params.classes:
        raise PeerMisbehavedError(active, "told what are no names of classes")
    return tuple(quoted(name, 1000) for name in names)


@dataclass(frozen=True)
class ByClass:
    """Predictions of a classification, by the names of its classes."""

    classes: tuple[str, ...]
    probabilities: FloatArray
    """Of each class, a row a sample: (n_samples, n_classes)."""

    @classmethod
    def of(cls, classes: Sequence[str], predicted: FloatArray) -> ByClass:
        """Return what an objective's predictions say."""
        return cls(tuple(classes), by_class(predicted))

    def likeliest(self) -> list[str]:
        """Return the class of each sample."""
        return [self.classes[k] for k in likeliest(self.probabilities.T)]


def check_asks(job: Job, name: str) -> None:
    """Raise ParameterError unless a participant may ask for explanations."""
    if job.explain is None:
        raise ParameterError(
            f"explain: the job {job.name!r} has no explanations; agree on 'explain' in job.toml, "
            '"feature" or "participant", and train with that'
        )
    recipient = job.names[job.recipient_index]
    if name != recipient:
        raise ParameterError(f"explain: is for {recipient} to ask, who receives the predictions")


def in_columns(explained: Explained, classes: Sequence[str]) -> dict[str, list[float]]:
    """Return contributions and the base as columns of a table; of several classes, for each."""
    found = explained.explanation
    outputs, _, n_samples = found.contributions.shape
    ends = [("", "")] if outputs == 1 else [(f" to {name}", f" of {name}") for name in classes]
    columns = {}
    for k, (of_one, _) in enumerate(ends):
        for name, values in zip(explained.names, found.contributions[k], strict=True):
            columns[f"contribution of {name}{of_one}"] = values.tolist()
    for base, (_, of_all) in zip(found.base.tolist(), ends, strict=True):
        columns[f"base{of_all}"] = [base] * n_samples
    return columns


def by_name(explained: Explained) -> dict[str, Any]:
    """Return contributions by name, and the base; of several classes, all of their values."""
    found = explained.explanation
    several = len(found.base) > 1
    values = found.contributions.transpose(1, 2, 0)
    named = zip(explained.names, values if several else values[..., 0], strict=True)
    return {
        "contributions": dict(named),
        "base": found.base.tolist() if several else float(found.base[0]),
    }


@dataclass(frozen=True, repr=False)
class Predictions:
    """What the recipient receives."""

    ids: Ids
    values: FloatArray
    """Values, (n_samples,); probabilities of the last of two classes, or of each of more: (K,
    n_samples)."""
    classes: tuple[str, ...] = ()
    explained: Explained | None = None
    """What contributes to the scores of these rows, if that was asked for."""

    @classmethod
    def of(cls, ids: Ids, found: FloatArray | Explained, classes: tuple[str, ...]) -> Predictions:
        """Return what was predicted of some rows, explained or not."""
        if isinstance(found, Explained):
            return cls(ids, found.predictions, classes, found)
        return cls(ids, found, classes)

    def take(self, rows: IndexArray) -> Predictions:
        """Return those of some rows, in that order."""
        explained = None if self.explained is None else self.explained.take(rows)
        return Predictions(self.ids.take(rows), self.values[..., rows], self.classes, explained)

    def to_csv(self) -> bytes:
        """Return a table of the ids, as their owner writes them, and of the predictions.

        Of a classification: the class that is likeliest, and the probability of each. Explained,
        they are followed by contributions and the base, which add up to the score.
        """
        names, columns = ["prediction"], [self.values.tolist()]
        if self.classes:
            found = ByClass.of(self.classes, self.values)
            names = ["class", *(f"probability of {name}" for name in self.classes)]
            columns = [found.likeliest(), *found.probabilities.T.tolist()]
        if self.explained is not None:
            more = in_columns(self.explained, self.classes)
            names, columns = [*names, *more], [*columns, *more.values()]
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        several = len(self.ids.names) > 1
        writer.writerow((*(self.ids.names if several else ("id",)), *names))
        writer.writerows(zip(*self.ids.cells(), *columns, strict=True))
        return text.getvalue().encode()

    def write(self, path: str | Path) -> None:
        """Write the table to a file, atomically."""
        write_atomically(path, self.to_csv(), private=True)


def load_own_part(party: PartyFile, path: str | Path, job: Job | None) -> PartFile:
    """Read our part of a model, and the job to predict with: its own, or one with new addresses."""
    file = load_part(path)
    if file.part.party != party.name:
        raise ModelError(f"{path}: is the part of {file.part.party}, not of {party.name}")
    if job is not None:
        for key, value in file.job.work().items():
            if job.work()[key] != value:
                raise ModelError(
                    f"{path}: was trained with {key}: {value}, and the job says {job.work()[key]}"
                )
    return file


def predict_batch(
    file: PartFile,
    frame: Frame,
    seat: Seat,
    folder: str | Path,
    *,
    explain: bool = False,
    batch: Batch | None = None,
) -> tuple[PartyReport, Predictions | None]:
    """Take part in predicting a batch; the recipient gets the predictions, the others None.

    Where the job aligns rows, those that all have are predicted; alignments are counted in a
    folder. If the recipient says `explain`, it gets what contributes to them, too. Where the job
    has shards and the batch is large, workers predict it, who find their rows by `batch`.
    """
    job, ids, common = seat.job, frame.ids, None
    assert ids is not None
    if explain:
        check_asks(job, seat.name)
    alignments = alignments_of(job, ids, folder)
    with contextlib.ExitStack() as stack:
        if batch is not None and in_shards(job.shards, frame.n_samples):
            engine = stack.enter_context(engine_of(batch.cluster, read_batch))
        channel = stack.enter_context(seat.meet())
        started = time.perf_counter()
        statement = Statement.of(
            job,
            command="predict",
            model=file.model,
            aligned=alignments.count,
            explain=explain,
        )
        purpose = agree_on_purpose(channel, job, statement)
        if job.align:
            common = find_common(channel, job, purpose, ids, alignments, seat.tell)
            frame = frame.take(common.rows)
        names = frame.names
        holding = Holding(
            samples=frame.n_samples,
            n_features=len(names),
            features=list(names),
            tables=file.part.n_tables,
        )
        agreement = agree_on_rows(channel, job, purpose, holding)

        classes: tuple[str, ...] = ()
        crew: Crew | None = None
        crowd: Crowd | None = None
        if in_shards(job.shards, agreement.samples):
            assert batch is not None
            rows = None if common is None else common.rows
            crew = stack.enter_context(
                crew_for_batch(seat, channel, agreement, file.part, frame, rows, batch, engine)
            )
            crowd = Crowd(job.shards, crew.workers)

        def program(runtime: Party, columns: FloatArray) -> FloatArray | Explained | None:
            nonlocal classes
            if common is None:
                digest = digest_of(ids, agreement.run)
                refuse_other_ids(runtime, job.names, digest, channel)
            features = len(agreement.features) if agreement.explain else None
            query = job.query(frame.n_samples, file.part.n_tables, features)
            unit = tell_unit(runtime, query, file.part)
            classes = tell_classes(runtime, channel, job, file)
            return answer(runtime, query, job.names, file.part, columns, unit, crowd)

        index = job.names.index(seat.name)
        record = run_party(
            program, index, job.names, frame.columns, channel, dealers=job.dealer_names
        )
    if crew is not None:
        record.meter.add_group(crew.meters)
    report = party_report(
        record,
        command="predict",
        file=file,
        samples=frame.n_samples,
        seconds=time.perf_counter() - started,
        alignment=None if common is None else common.report,
        worker_peak_rss_mb=None if crew is None else crew.peak_rss_mb,
    )
    if record.result is None:
        return report, None
    found = Predictions.of(ids if common is None else ids.take(common.rows), record.result, classes)
    return report, found if common is None else found.take(np.argsort(common.rows))
