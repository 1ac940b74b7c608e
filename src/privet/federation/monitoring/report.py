"""The report of one participant in a job: results, costs and disclosures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from privet.arrays import FloatArray
from privet.boosting.model_part import ModelPart
from privet.boosting.prediction import ValidationResult
from privet.boosting.summary import compute_gain_importances
from privet.filesystem import write_atomically
from privet.objectives.base import Objective
from privet.runtime.accounting import DisclosureLedger
from privet.runtime.run import PartyResult
from privet.spec.sampling import find_best_table_count
from privet.storage.model_part import ModelPartFile
from privet.version import __version__


class ReportModel(BaseModel):
    """A part of a report, or a whole one: written once, and read by programs of others."""

    model_config = ConfigDict(frozen=True)

    def write(self, path: str | Path) -> None:
        """Write the report as JSON, atomically."""
        write_atomically(path, self.model_dump_json(indent=2).encode() + b"\n")


class Reveal(ReportModel):
    """Something that left the protocol in the clear."""

    what: str
    """What it is, as the ledger calls it."""
    to: list[str]
    """Who learned it."""
    count: int
    """How many values, in training and prediction together."""


class AlignmentReport(ReportModel):
    """How the rows that take part were found, where a job aligns them."""

    name: str
    """The alignment's, the same at all."""
    number: int
    """How many alignments for this job were made by us."""
    used_again: bool
    """Whether it is one that was kept."""
    rows: int
    """How many we have."""
    common: int
    """How many all have."""
    seconds: float
    """From the first message to the last."""
    bytes_to_dealer: int
    """What we sent."""
    bytes_from_dealer: int
    """What we received."""
    reveals: list[Reveal]
    """What it took to find them; nothing, if that was done before."""


class ValidationReport(ReportModel):
    """What the label's holder learned of validation rows."""

    rows: int
    """How many there are."""
    losses: list[float]
    """The mean loss after each table that was trained: half the squared error, or the log-loss."""
    best_table: int
    """How many tables have the smallest."""
    metrics: dict[str, float | None] = {}
    """Of all tables that were kept, where the predictions of these rows are revealed."""
    curves: dict[str, list[tuple[float, float]]] = {}
    """Points, as `objectives.metrics.curves` says."""
    importances: dict[str, list[float]] = {}
    """How large contributions to their scores are on average, where that is revealed: of each
    feature or participant, to each output."""


def make_validation_report(
    objective: Objective, losses: Sequence[float], label: FloatArray, validated: ValidationResult
) -> ValidationReport:
    """Return the losses on the validation rows, and all else that was revealed about them."""
    predicted = validated.predictions
    return ValidationReport(
        rows=len(label),
        losses=list(losses),
        best_table=find_best_table_count(losses),
        metrics={} if predicted is None else objective.compute_metrics(label, predicted),
        curves={} if predicted is None else objective.compute_curves(label, predicted),
        importances=validated.importances or {},
    )


class FeatureImportance(ReportModel):
    """How much a feature counts in a model."""

    feature: str
    """Its name."""
    owner: str
    """Who holds it."""
    importance: float
    """Its share of all."""


class GainReport(ReportModel):
    """What the label's holder learned of gains."""

    levels: list[list[float]]
    """By how much each level of each table lowered the loss, to second order and before the
    learning rate, in the square of the label's unit."""
    importances: list[FeatureImportance]
    """The share of all that each tested feature has, the largest first."""


def make_gain_report(part: ModelPart) -> GainReport | None:
    """Return the gains in a model part; None if it contains none."""
    importances = compute_gain_importances(part)
    if part.gains is None or importances is None:
        return None
    return GainReport(
        levels=part.gains.tolist(),
        importances=[
            FeatureImportance(feature=feature.name, owner=feature.owner, importance=importance)
            for feature, importance in importances
        ],
    )


class PartyReport(ReportModel):
    """What one participant did in a job: its own view."""

    version: str
    """Of this software."""
    command: str
    """`train` or `predict`."""
    job: str
    """The job's name."""
    party: str
    """Whose report this is."""
    model: str
    """The model's name."""
    tables: int
    """How many the model has."""
    resumed_from: int = 0
    """How many of the tables an earlier run had trained."""
    n_samples: int
    """Rows that were trained on, or predicted."""
    seconds: float
    """From meeting the others to the end."""
    rounds: int
    """Network delays that it waited for."""
    bytes_sent: int
    """To the other participants."""
    bytes_received: int
    """From them."""
    bytes_from_dealer: int
    """From the dealer, or all three."""
    correlations: Literal["live", "ahead", "none"] = "live"
    """From a dealer that was there, so that its time is part of `seconds`; or dealt ahead; or none,
    where nothing was computed."""
    validation: ValidationReport | None = None
    """Of a training with validation rows, at the label's holder."""
    gains: GainReport | None = None
    """There, of a training that has them revealed."""
    alignment: AlignmentReport | None = None
    """Its bytes are counted apart; its time is part of `seconds`."""
    reveals: list[Reveal]
    """What left the protocol in the clear, in the order in which it first did."""
    peak_rss_mb: float
    """The most memory that the process took."""
    worker_peak_rss_mb: float | None = None
    """The most that a process of its workers took, where rows are in shards and workers in other
    processes: of the largest one, which may have several workers."""


def make_party_report(
    party_result: PartyResult,
    *,
    command: str,
    part_file: ModelPartFile,
    n_samples: int,
    seconds: float,
    n_resumed_tables: int = 0,
    is_preprocessed: bool = False,
    alignment: AlignmentReport | None = None,
    validation: ValidationReport | None = None,
    worker_peak_rss_mb: float | None = None,
) -> PartyReport:
    """Return the report of one participant's run."""
    online, offline = (
        party_result.meter.sum_traffic("online"),
        party_result.meter.sum_traffic("offline"),
    )
    return PartyReport(
        version=__version__,
        command=command,
        job=part_file.job.name,
        party=part_file.part.party,
        model=part_file.model_id,
        tables=part_file.part.n_tables,
        resumed_from=n_resumed_tables,
        n_samples=n_samples,
        seconds=seconds,
        rounds=online.rounds,
        bytes_sent=online.sent,
        bytes_received=online.received,
        bytes_from_dealer=offline.received,
        correlations="ahead" if is_preprocessed else "live",
        validation=validation,
        gains=make_gain_report(part_file.part) if command == "train" else None,
        alignment=alignment,
        reveals=[
            *([] if alignment is None else alignment.reveals),
            *summarise_disclosures(party_result.ledger),
        ],
        peak_rss_mb=party_result.peak_rss_mb,
        worker_peak_rss_mb=worker_peak_rss_mb,
    )


def summarise_disclosures(ledger: DisclosureLedger) -> list[Reveal]:
    """Return the total of each disclosure, in the order of first occurrence."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for entry in ledger.entries:
        counts[entry.disclosure, entry.recipients] = (
            counts.get((entry.disclosure, entry.recipients), 0) + entry.n_elements
        )
    return [
        Reveal(what=disclosure, to=list(recipients), count=n)
        for (disclosure, recipients), n in counts.items()
    ]
