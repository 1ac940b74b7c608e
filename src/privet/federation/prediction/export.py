"""Joining a model, where all agree on it: what each part has goes to whom the job names.

The dealer takes no part. The receiver gets what it needs to predict alone, and no more: leaf
values, the thresholds of the tests that the others own, the categories that these tests tell apart,
the label's unit and the names of its classes. Nobody else gets anything.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import FailFast, Field

from privet.arithmetic.rings import Z32, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.boosting.model import Model
from privet.boosting.model_part import LabelUnit, ModelPart, whole
from privet.config.job import Job
from privet.data.encoding import Encoder, features_of
from privet.errors import ModelError, ParameterError, PeerMisbehavedError
from privet.federation.monitoring.report import PartyReport, party_report
from privet.federation.session.agreement import Statement, agree_on_purpose
from privet.federation.session.session import Seat, parse
from privet.runtime.correlations.source import Undealt
from privet.runtime.party import Party
from privet.runtime.run import Record, run_party
from privet.schema import Checked, quoted
from privet.storage.arrow_streams import MOST_OUTPUTS, UnitRecord
from privet.storage.json_records import EncoderRecord, Infinity, Text, threshold_to_json
from privet.storage.model_part import PartFile
from privet.transport.channel import Channel, receive, send


class Contribution(Checked):
    """What the receiver lacks of one participant's part, beside its shares of leaf values."""

    thresholds: Annotated[list[float | Infinity], FailFast()]
    """Of its own tests, in the order of tables and levels."""
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    unit: UnitRecord | None
    """The label's, from its holder."""
    classes: Annotated[list[Text], Field(max_length=MOST_OUTPUTS)]
    """Of the label, from its holder."""

    @classmethod
    def of(cls, file: PartFile) -> Contribution:
        """Return what one participant contributes."""
        part, unit = file.part, file.part.unit
        own = _tests_of(part, part.party)
        thresholds: list[float] = part.threshold[own].tolist()
        tests: dict[str, list[float]] = {}
        for j, threshold in zip(part.feature[own], thresholds, strict=True):
            tests.setdefault(part.features[j].name, []).append(threshold)
        return cls(
            thresholds=[threshold_to_json(threshold) for threshold in thresholds],
            encoders=[EncoderRecord.of(encoder.needed_for(tests)) for encoder in file.encoders],
            unit=None if unit is None else UnitRecord(start=list(unit.start), scale=unit.scale),
            classes=list(file.classes),
        )


def receiver_of(job: Job) -> str:
    """Return who gets the model; raise ParameterError if nobody is to."""
    if not job.export:
        raise ParameterError(
            "export: the job names nobody who may get the whole model; if all agree on somebody, "
            'write export = "NAME" into everybody\'s job, and give that with --job'
        )
    return job.export


def export_part(file: PartFile, seat: Seat) -> tuple[PartyReport, Model | None]:
    """Take part in joining a model; its receiver gets it, the others None."""
    job = seat.job
    receiver_of(job)
    with seat.meet(ahead=True) as channel:
        started = time.perf_counter()
        agree_on_purpose(channel, job, Statement.of(job, command="export", model=file.model))
        record = hand_over(channel, job, file)
    seconds = time.perf_counter() - started
    report = party_report(record, command="export", file=file, samples=0, seconds=seconds)
    return report.model_copy(update={"correlations": "none"}), record.result


def hand_over(channel: Channel, job: Job, file: PartFile) -> Record:
    """Send what is ours to the receiver, or receive it from all others.

    Reveals: leaf values, thresholds, categories of columns, the label's unit and the names of its
    classes, as far as the receiver has not got them: to the receiver.
    """
    receiver = receiver_of(job)

    def program(runtime: Party, _: None) -> Model | None:
        with runtime.step("export"):
            shares = Share(file.part.leaf_shares, Z32)
            leaves = runtime.reveal(shares, [job.names.index(receiver)], "leaf values")
            _record(runtime, job, file.part)
            traffic = runtime.meter.online[runtime.step_name]
            if leaves is None:
                content = Contribution.of(file).model_dump_json().encode()
                send(channel, [receiver], content)
                traffic.messages += 1
                traffic.sent += len(content)
                return None
            contents = {name: receive(channel, name) for name in job.names if name != receiver}
            traffic.received += sum(map(len, contents.values()))
            contributions = {
                name: parse(Contribution, name, content) for name, content in contents.items()
            }
            return _join(job, file, contributions, leaves)

    index = job.names.index(channel.name)
    return run_party(program, index, job.names, None, channel, Undealt())


def _record(runtime: Party, job: Job, part: ModelPart) -> None:
    """Write into the ledger what the receiver is told, beside leaf values."""
    receiver, active = job.export, job.names[job.active]
    others = [feature for feature in part.features if feature.owner != receiver]
    told = {
        "thresholds": int(np.count_nonzero(~_tests_of(part, receiver))),
        "kinds and categories of columns": len(others),
    }
    if receiver != active:
        told["centre and scale of the label"] = 2
        told["names of the classes"] = int(job.hyper_parameters().objective.has_classes)
    for what, count in told.items():
        if count:
            runtime.ledger.record(what, (receiver,), count, runtime.step_name)


def _join(
    job: Job, file: PartFile, contributions: dict[str, Contribution], leaves: RingArray
) -> Model:
    """Return the model that our part and what the others contribute make together."""
    part = file.part
    threshold = part.threshold.copy()
    encoders: list[Encoder] = []
    unit, classes = part.unit, file.classes
    for name in job.names:
        if name == part.party:
            encoders += file.encoders
            continue
        theirs, tests = contributions[name], _tests_of(part, name)
        if len(theirs.thresholds) != np.count_nonzero(tests):
            raise PeerMisbehavedError(name, "sent thresholds of other tests than its own")
        threshold[tests] = [float(t) for t in theirs.thresholds]
        made = tuple(record.encoder() for record in theirs.encoders)
        if features_of(made) != tuple(f.name for f in part.features if f.owner == name):
            raise PeerMisbehavedError(name, "described other columns than the model's")
        encoders += made
        if (theirs.unit is not None) != (name == job.names[job.active]):
            raise PeerMisbehavedError(name, "sent the label's unit, or did not, in another's role")
        if theirs.unit is not None:
            unit = LabelUnit(tuple(theirs.unit.start), theirs.unit.scale)
            classes = tuple(quoted(text, 1000) for text in theirs.classes)
    assert unit is not None
    try:
        model = whole(part, numbered(part.feature, threshold), threshold, leaves, unit)
        return replace(model, encoders=tuple(encoders), classes=classes)
    except ModelError as error:
        raise ModelError(f"the parts make no model: {error}: train again") from None


def numbered(feature: IndexArray, threshold: FloatArray) -> IndexArray:
    """Return buckets as a model's tests show them: thresholds of a feature are counted upwards.

    Which bucket a test has at its owner would tell how many cuts there are below.
    """
    bucket = np.empty_like(feature)
    for j in np.unique(feature):
        tests = feature == j
        bucket[tests] = np.unique(threshold[tests], return_inverse=True)[1]
    return bucket


def _tests_of(part: ModelPart, owner: str) -> BoolArray:
    """Return which tests are a participant's: (tables, depth)."""
    owned = np.array([feature.owner == owner for feature in part.features])
    result: BoolArray = owned[part.feature]
    return result
