"""Export of a whole model to the participant that the job names as the receiver.

All participants must agree on the export, and no dealer takes part. The receiver learns only the
values that it needs to predict on its own: leaf values, the thresholds of the other participants'
splits, the categories that these splits distinguish, the label's unit and the class names. No other
participant learns anything.
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
from privet.boosting.model_part import LabelUnit, ModelPart, build_model
from privet.config.job import Job
from privet.data.encoding import Encoder, list_feature_names
from privet.errors import ModelError, ParameterError, PeerMisbehavedError
from privet.federation.monitoring.report import PartyReport, make_party_report
from privet.federation.session.agreement import Proposal, exchange_proposals
from privet.federation.session.session import LocalMember, parse_message
from privet.runtime.correlations.source import NoCorrelations
from privet.runtime.party import Party
from privet.runtime.run import PartyResult, run_party
from privet.schema import StrictSchema, quote_untrusted
from privet.storage.arrow_streams import MAX_OUTPUTS, LabelUnitRecord
from privet.storage.json_records import EncoderRecord, Infinity, Text, encode_threshold
from privet.storage.model_part import ModelPartFile
from privet.transport.channel import Channel, receive_message, send_message


class PartExport(StrictSchema):
    """A participant's contribution to an export, besides its shares of the leaf values."""

    thresholds: Annotated[list[float | Infinity], FailFast()]
    """Of its own tests, in the order of tables and levels."""
    encoders: Annotated[list[EncoderRecord], Field(max_length=100_000), FailFast()]
    unit: LabelUnitRecord | None
    """The label's, from its holder."""
    classes: Annotated[list[Text], Field(max_length=MAX_OUTPUTS)]
    """Of the label, from its holder."""

    @classmethod
    def from_part(cls, part_file: ModelPartFile) -> PartExport:
        """Return the contribution of a participant's model part."""
        part, unit = part_file.part, part_file.part.label_unit
        is_local = _find_splits_of(part, part.party)
        thresholds: list[float] = part.threshold[is_local].tolist()
        thresholds_by_feature: dict[str, list[float]] = {}
        for j, threshold in zip(part.feature[is_local], thresholds, strict=True):
            thresholds_by_feature.setdefault(part.features[j].name, []).append(threshold)
        return cls(
            thresholds=[encode_threshold(threshold) for threshold in thresholds],
            encoders=[
                EncoderRecord.from_encoder(encoder.restrict_to_splits(thresholds_by_feature))
                for encoder in part_file.encoders
            ],
            unit=None
            if unit is None
            else LabelUnitRecord(start=list(unit.initial_scores), scale=unit.scale),
            classes=list(part_file.classes),
        )


def get_export_receiver(job: Job) -> str:
    """Return the participant that receives the model; raise if the job names none."""
    if not job.export:
        raise ParameterError(
            "export: the job names nobody who may get the whole model; if all agree on somebody, "
            'write export = "NAME" into everybody\'s job, and give that with --job'
        )
    return job.export


def export_part(part_file: ModelPartFile, member: LocalMember) -> tuple[PartyReport, Model | None]:
    """Export a model with the other participants; return it at the receiver, None at the others."""
    job = member.job
    get_export_receiver(job)
    with member.connect(same_role_only=True) as channel:
        started = time.perf_counter()
        exchange_proposals(
            channel, job, Proposal.for_job(job, command="export", model=part_file.model_id)
        )
        party_result = send_or_receive_parts(channel, job, part_file)
    seconds = time.perf_counter() - started
    report = make_party_report(
        party_result, command="export", part_file=part_file, n_samples=0, seconds=seconds
    )
    return report.model_copy(update={"correlations": "none"}), party_result.result


def send_or_receive_parts(channel: Channel, job: Job, part_file: ModelPartFile) -> PartyResult:
    """Send the local part to the receiver, or receive the parts of all other participants.

    Reveals: leaf values, thresholds, categories of columns, the label's unit and the names of its
    classes, as far as the receiver does not know them: to the receiver.
    """
    receiver = get_export_receiver(job)

    def program(runtime: Party, _: None) -> Model | None:
        with runtime.step("export"):
            shares = Share(part_file.part.leaf_shares, Z32)
            leaves = runtime.reveal(shares, [job.party_names.index(receiver)], "leaf values")
            _record_disclosures(runtime, job, part_file.part)
            traffic = runtime.meter.online[runtime.step_name]
            if leaves is None:
                content = PartExport.from_part(part_file).model_dump_json().encode()
                send_message(channel, [receiver], content)
                traffic.messages += 1
                traffic.sent += len(content)
                return None
            contents = {
                name: receive_message(channel, name) for name in job.party_names if name != receiver
            }
            traffic.received += sum(map(len, contents.values()))
            exports = {
                name: parse_message(PartExport, name, content) for name, content in contents.items()
            }
            return _join(job, part_file, exports, leaves)

    index = job.party_names.index(channel.name)
    return run_party(program, index, job.party_names, None, channel, NoCorrelations())


def _record_disclosures(runtime: Party, job: Job, part: ModelPart) -> None:
    """Record what is revealed to the receiver, besides leaf values."""
    receiver, label_holder = job.export, job.party_names[job.label_holder_index]
    others = [feature for feature in part.features if feature.owner != receiver]
    counts = {
        "thresholds": int(np.count_nonzero(~_find_splits_of(part, receiver))),
        "kinds and categories of columns": len(others),
    }
    if receiver != label_holder:
        counts["centre and scale of the label"] = 2
        counts["names of the classes"] = int(job.make_params().objective.is_classification)
    for disclosure, count in counts.items():
        if count:
            runtime.ledger.record(disclosure, (receiver,), count, runtime.step_name)


def _join(
    job: Job, part_file: ModelPartFile, exports: dict[str, PartExport], leaves: RingArray
) -> Model:
    """Return the model made of the local part and the exports of the other participants."""
    part = part_file.part
    threshold = part.threshold.copy()
    encoders: list[Encoder] = []
    unit, classes = part.label_unit, part_file.classes
    for name in job.party_names:
        if name == part.party:
            encoders += part_file.encoders
            continue
        export, owned = exports[name], _find_splits_of(part, name)
        if len(export.thresholds) != np.count_nonzero(owned):
            raise PeerMisbehavedError(name, "sent thresholds of other tests than its own")
        threshold[owned] = [float(t) for t in export.thresholds]
        received_encoders = tuple(record.to_encoder() for record in export.encoders)
        if list_feature_names(received_encoders) != tuple(
            f.name for f in part.features if f.owner == name
        ):
            raise PeerMisbehavedError(name, "described other columns than the model's")
        encoders += received_encoders
        if (export.unit is not None) != (name == job.party_names[job.label_holder_index]):
            raise PeerMisbehavedError(name, "sent the label's unit, or did not, in another's role")
        if export.unit is not None:
            unit = LabelUnit(tuple(export.unit.start), export.unit.scale)
            classes = tuple(quote_untrusted(text, 1000) for text in export.classes)
    assert unit is not None
    try:
        model = build_model(
            part, number_thresholds(part.feature, threshold), threshold, leaves, unit
        )
        return replace(model, encoders=tuple(encoders), classes=classes)
    except ModelError as error:
        raise ModelError(f"the parts make no model: {error}: train again") from None


def number_thresholds(feature: IndexArray, threshold: FloatArray) -> IndexArray:
    """Return bucket numbers of a model's splits: the thresholds of a feature, numbered upwards.

    The bucket number at the owner is not exported: it would reveal how many cuts lie below.
    """
    bucket = np.empty_like(feature)
    for j in np.unique(feature):
        splits = feature == j
        bucket[splits] = np.unique(threshold[splits], return_inverse=True)[1]
    return bucket


def _find_splits_of(part: ModelPart, owner: str) -> BoolArray:
    """Return a mask of the splits that a participant owns: (tables, depth)."""
    is_owned = np.array([feature.owner == owner for feature in part.features])
    result: BoolArray = is_owned[part.feature]
    return result
