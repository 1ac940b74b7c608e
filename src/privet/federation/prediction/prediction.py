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
from privet.boosting.prediction import ExplainedPredictions, answer_query, reveal_label_unit
from privet.boosting.sharding import BatchWorkers, uses_shards
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.frame import Frame, Ids
from privet.errors import ModelError, ParameterError, PeerMisbehavedError
from privet.federation.alignment.alignment import (
    align_rows,
    digest_ids,
    open_alignment_store,
    require_same_ids,
)
from privet.federation.cluster.executors import make_executor
from privet.federation.cluster.pool import (
    BatchSource,
    WorkerPool,
    load_prediction_rows,
    start_prediction_pool,
)
from privet.federation.monitoring.report import PartyReport, make_party_report
from privet.federation.session.agreement import (
    DataSummary,
    Proposal,
    exchange_proposals,
    exchange_summaries,
)
from privet.federation.session.session import LocalMember
from privet.filesystem import write_atomically
from privet.objectives.metrics import choose_likeliest_class, list_class_probabilities
from privet.runtime.party import Party
from privet.runtime.run import run_party
from privet.schema import quote_untrusted
from privet.storage.model_part import ModelPartFile, load_part
from privet.transport.channel import (
    Channel,
    pack_texts,
    receive_message,
    send_message,
    unpack_texts,
)


def reveal_class_names(
    runtime: Party, channel: Channel, job: Job, part_file: ModelPartFile
) -> tuple[str, ...]:
    """Return the class names at the label holder and at the recipient; none at the others.

    Reveals: the class names to the recipient, if it is not the label holder.
    """
    label_holder, recipient = (
        job.party_names[job.label_holder_index],
        job.party_names[job.recipient_index],
    )
    params = job.make_params()
    if not params.objective.is_classification or label_holder == recipient:
        return part_file.classes
    runtime.ledger.record("names of the classes", (recipient,), 1, "predict")
    if channel.name == label_holder:
        send_message(channel, [recipient], pack_texts(part_file.classes))
    if channel.name != recipient:
        return part_file.classes
    try:
        names = unpack_texts(receive_message(channel, label_holder))
    except ValueError:
        names = []
    if len(names) != params.classes:
        raise PeerMisbehavedError(label_holder, "told what are no names of classes")
    return tuple(quote_untrusted(name, 1000) for name in names)


@dataclass(frozen=True)
class ClassProbabilities:
    """Predictions of a classification, by the names of its classes."""

    classes: tuple[str, ...]
    probabilities: FloatArray
    """Of each class, a row a sample: (n_samples, n_classes)."""

    @classmethod
    def from_predictions(cls, classes: Sequence[str], predicted: FloatArray) -> ClassProbabilities:
        """Return the probabilities in an objective's predictions."""
        return cls(tuple(classes), list_class_probabilities(predicted))

    def choose_likeliest_classes(self) -> list[str]:
        """Return the class of each sample."""
        return [self.classes[k] for k in choose_likeliest_class(self.probabilities.T)]


def check_may_explain(job: Job, name: str) -> None:
    """Raise ParameterError unless the participant can request explanations."""
    if job.explain is None:
        raise ParameterError(
            f"explain: the job {job.name!r} has no explanations; agree on 'explain' in job.toml, "
            '"feature" or "participant", and train with that'
        )
    recipient = job.party_names[job.recipient_index]
    if name != recipient:
        raise ParameterError(f"explain: is for {recipient} to ask, who receives the predictions")


def make_explanation_columns(
    explained: ExplainedPredictions, classes: Sequence[str]
) -> dict[str, list[float]]:
    """Return contributions and base as table columns, for each class if there are several."""
    explanation = explained.explanation
    outputs, _, n_samples = explanation.contributions.shape
    suffixes = [("", "")] if outputs == 1 else [(f" to {name}", f" of {name}") for name in classes]
    columns = {}
    for k, (contribution_suffix, _) in enumerate(suffixes):
        for name, values in zip(explained.names, explanation.contributions[k], strict=True):
            columns[f"contribution of {name}{contribution_suffix}"] = values.tolist()
    for base, (_, base_suffix) in zip(explanation.base.tolist(), suffixes, strict=True):
        columns[f"base{base_suffix}"] = [base] * n_samples
    return columns


def make_explanation_dict(explained: ExplainedPredictions) -> dict[str, Any]:
    """Return contributions by name, and the base; with several classes, a value for each class."""
    explanation = explained.explanation
    several = len(explanation.base) > 1
    values = explanation.contributions.transpose(1, 2, 0)
    named = zip(explained.names, values if several else values[..., 0], strict=True)
    return {
        "contributions": dict(named),
        "base": explanation.base.tolist() if several else float(explanation.base[0]),
    }


@dataclass(frozen=True, repr=False)
class Predictions:
    """The predictions that the recipient receives."""

    ids: Ids
    values: FloatArray
    """Values, (n_samples,); probabilities of the last of two classes, or of each of more: (K,
    n_samples)."""
    classes: tuple[str, ...] = ()
    explanation: ExplainedPredictions | None = None
    """Attributions of the scores of these rows, if they were requested."""

    @classmethod
    def from_result(
        cls, ids: Ids, result: FloatArray | ExplainedPredictions, classes: tuple[str, ...]
    ) -> Predictions:
        """Return predictions from a result with or without explanations."""
        if isinstance(result, ExplainedPredictions):
            return cls(ids, result.predictions, classes, result)
        return cls(ids, result, classes)

    def take(self, rows: IndexArray) -> Predictions:
        """Return the predictions of some rows, in that order."""
        explained = None if self.explanation is None else self.explanation.take(rows)
        return Predictions(self.ids.take(rows), self.values[..., rows], self.classes, explained)

    def to_csv(self) -> bytes:
        """Return a CSV table of the ids, as their owner writes them, and the predictions.

        For a classification, the columns are the likeliest class and the probability of each class.
        With explanations, the contributions and the base follow, which add up to the score.
        """
        names, columns = ["prediction"], [self.values.tolist()]
        if self.classes:
            by_class = ClassProbabilities.from_predictions(self.classes, self.values)
            names = ["class", *(f"probability of {name}" for name in self.classes)]
            columns = [by_class.choose_likeliest_classes(), *by_class.probabilities.T.tolist()]
        if self.explanation is not None:
            explanation_columns = make_explanation_columns(self.explanation, self.classes)
            names, columns = (
                [*names, *explanation_columns],
                [*columns, *explanation_columns.values()],
            )
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        several = len(self.ids.names) > 1
        writer.writerow((*(self.ids.names if several else ("id",)), *names))
        writer.writerows(zip(*self.ids.to_columns(), *columns, strict=True))
        return text.getvalue().encode()

    def write(self, path: str | Path) -> None:
        """Write the table to a file, atomically."""
        write_atomically(path, self.to_csv(), private=True)


def load_local_part(config: PartyConfig, path: str | Path, job: Job | None) -> ModelPartFile:
    """Read the local model part; raise ModelError if its participant or job do not match."""
    file = load_part(path)
    if file.part.party != config.name:
        raise ModelError(f"{path}: is the part of {file.part.party}, not of {config.name}")
    if job is not None:
        for key, value in file.job.list_digest_settings().items():
            if job.list_digest_settings()[key] != value:
                raise ModelError(
                    f"{path}: was trained with {key}: {value}, and the job says "
                    f"{job.list_digest_settings()[key]}"
                )
    return file


def predict_batch(
    part_file: ModelPartFile,
    frame: Frame,
    member: LocalMember,
    alignment_folder: str | Path,
    *,
    explain: bool = False,
    source: BatchSource | None = None,
) -> tuple[PartyReport, Predictions | None]:
    """Predict a batch with the other participants; return predictions at the recipient only.

    If `align = true`, the common rows are predicted, and `alignment_folder` counts the alignments.
    If the recipient sets `explain`, it also receives feature attributions. If the job has shards
    and the batch is large, workers predict it, which read their rows from `source`.
    """
    job, ids, common = member.job, frame.ids, None
    assert ids is not None
    if explain:
        check_may_explain(job, member.name)
    alignments = open_alignment_store(job, ids, alignment_folder)
    with contextlib.ExitStack() as stack:
        if source is not None and uses_shards(job.shards, frame.n_samples):
            executor = stack.enter_context(make_executor(source.cluster, load_prediction_rows))
        channel = stack.enter_context(member.connect())
        started = time.perf_counter()
        proposal = Proposal.for_job(
            job,
            command="predict",
            model=part_file.model_id,
            aligned=alignments.read_count,
            explain=explain,
        )
        plan = exchange_proposals(channel, job, proposal)
        if job.align:
            common = align_rows(channel, job, plan, ids, alignments, member.emit)
            frame = frame.take(common.rows)
        names = frame.names
        summary = DataSummary(
            samples=frame.n_samples,
            n_features=len(names),
            features=list(names),
            tables=part_file.part.n_tables,
        )
        agreement = exchange_summaries(channel, job, plan, summary)

        classes: tuple[str, ...] = ()
        pool: WorkerPool | None = None
        batch_workers: BatchWorkers | None = None
        if uses_shards(job.shards, agreement.n_samples):
            assert source is not None
            rows = None if common is None else common.rows
            pool = stack.enter_context(
                start_prediction_pool(
                    member, channel, agreement, part_file.part, frame, rows, source, executor
                )
            )
            batch_workers = BatchWorkers(job.shards, pool.worker_handles)

        def program(
            runtime: Party, columns: FloatArray
        ) -> FloatArray | ExplainedPredictions | None:
            nonlocal classes
            if common is None:
                digest = digest_ids(ids, agreement.run)
                require_same_ids(runtime, job.party_names, digest, channel)
            features = len(agreement.features) if agreement.explain else None
            query = job.make_prediction_query(frame.n_samples, part_file.part.n_tables, features)
            unit = reveal_label_unit(runtime, query, part_file.part)
            classes = reveal_class_names(runtime, channel, job, part_file)
            return answer_query(
                runtime, query, job.party_names, part_file.part, columns, unit, batch_workers
            )

        index = job.party_names.index(member.name)
        party_result = run_party(
            program, index, job.party_names, frame.columns, channel, dealers=job.dealer_names
        )
    if pool is not None:
        party_result.meter.add_parallel(pool.meters)
    report = make_party_report(
        party_result,
        command="predict",
        part_file=part_file,
        n_samples=frame.n_samples,
        seconds=time.perf_counter() - started,
        alignment=None if common is None else common.report,
        worker_peak_rss_mb=None if pool is None else pool.peak_rss_mb,
    )
    if party_result.result is None:
        return report, None
    predictions = Predictions.from_result(
        ids if common is None else ids.take(common.rows), party_result.result, classes
    )
    return report, predictions if common is None else predictions.take(np.argsort(common.rows))
