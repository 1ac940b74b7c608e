"""An exported model: its receiver gets only what it needs, and the others receive nothing."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privet.boosting.model import Feature, Model
from privet.boosting.model_part import LabelUnit, ModelPart, join_parts
from privet.config.job import Job
from privet.data.encoding import Encoder
from privet.errors import ParameterError, PeerMisbehavedError, PrivetError
from privet.federation.prediction.export import PartExport, send_or_receive_parts
from privet.spec.column_types import NUMBER, ColumnType
from privet.storage.model_part import ModelPartFile
from privet.transport.channel import Array
from privet.transport.memory import MemoryChannel, create_memory_channels

NAMES = ("bank", "telecom", "shop")
JOBS = ("cook", "clerk", "smith", "nurse", "judge")
TOWNS = ("Ulm", "Bonn", "Jena")
FEATURES = (
    *(Feature(name, "bank") for name in ("job", "town 1", "town 2", "town 3")),
    *(Feature(name, "telecom") for name in ("calls", "idle")),
    Feature("spent", "shop"),
)
ENCODERS = {
    "bank": (
        Encoder("job", ColumnType("category"), JOBS),
        Encoder("town", ColumnType("category", one_hot=True), TOWNS),
    ),
    "telecom": (Encoder("calls", NUMBER), Encoder("idle", ColumnType("category"), ("yes", "no"))),
    "shop": (Encoder("spent", NUMBER),),
}
FEATURE = np.array([[0, 4, 6], [2, 0, 4]])
BUCKET = np.array([[1, 7, 3], [0, 0, 9]])
THRESHOLD = np.array([[1.5, 0.25, -np.inf], [0.5, 0.5, 3.0]])


def job(export: str = "telecom") -> Job:
    peers = {name: (f"{name}:1", f"{k}" * 64) for k, name in enumerate((*NAMES, "dealer"))}
    roles = {"shop": "active"}
    return Job.parse(
        {
            "name": "joint",
            "task": "classification",
            "export": export,
            "params": {"tables": 2, "depth": 3},
            "dealer": {"address": peers["dealer"][0], "fingerprint": peers["dealer"][1]},
            "participants": [
                {
                    "name": name,
                    "role": roles.get(name, "passive"),
                    "address": peers[name][0],
                    "fingerprint": peers[name][1],
                }
                for name in NAMES
            ],
        }
    )


def files(agreed: Job) -> dict[str, ModelPartFile]:
    """Return the parts of a model, as after a training run."""
    rng = np.random.default_rng(5)
    parts = {}
    for name in NAMES:
        is_local = np.array([f.owner == name for f in FEATURES])[FEATURE]
        part = ModelPart(
            protocol="masked",
            task="classification",
            features=FEATURES,
            party=name,
            feature=FEATURE,
            bucket=np.where(is_local, BUCKET, -1),
            threshold=np.where(is_local, THRESHOLD, np.nan),
            leaf_shares=rng.integers(0, 1 << 32, (2, 1, 8), dtype=np.uint32),
            fraction_bits=16,
            label_unit=LabelUnit() if name == "shop" else None,
        )
        classes = ("stays", "leaves") if name == "shop" else ()
        parts[name] = ModelPartFile(part, agreed, f"data of {name}", "run", ENCODERS[name], classes)
    return parts


class RecordedExport:
    """The export of a model by three participants; records all their messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[tuple[str, str], list[bytes]] = {}
        send = MemoryChannel.send

        def recording_send(
            channel: MemoryChannel, peer: str, array: Array, tag: int = 0, stream: int = 0
        ) -> None:
            self.sent.setdefault((channel.name, peer), []).append(array.tobytes())
            send(channel, peer, array, tag, stream)

        monkeypatch.setattr(MemoryChannel, "send", recording_send)

    def run(
        self, agreed: Job, parts: dict[str, ModelPartFile]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Export a model; return the results and the errors of participants."""
        self.sent.clear()
        channels = create_memory_channels(NAMES)
        results: dict[str, Any] = {}
        errors: dict[str, Any] = {}

        def role(name: str) -> None:
            try:
                results[name] = send_or_receive_parts(channels[name], agreed, parts[name])
            except PrivetError as error:
                errors[name] = error

        threads = [threading.Thread(target=role, args=(name,), daemon=True) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        return results, errors


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch) -> RecordedExport:
    return RecordedExport(monkeypatch)


@pytest.mark.parametrize("receiver", NAMES)
def test_only_the_receiver_gets_the_model(exporting: RecordedExport, receiver: str) -> None:
    agreed = job(receiver)
    parts = files(agreed)
    results, errors = exporting.run(agreed, parts)
    assert not errors
    joined = join_parts([parts[name].part for name in NAMES])
    model: Model = results[receiver].result
    assert np.array_equal(model.threshold, THRESHOLD)
    assert np.array_equal(model.leaf_values, joined.leaf_values)
    assert model.classes == ("stays", "leaves")
    assert [results[name].result for name in NAMES if name != receiver] == [None, None]
    assert sorted({to for _, to in exporting.sent}) == [receiver]
    for name in NAMES:
        assert {entry.recipients for entry in results[name].ledger.entries} == {(receiver,)}


def test_nothing_is_sent_without_export(exporting: RecordedExport) -> None:
    agreed = job("")
    results, errors = exporting.run(agreed, files(agreed))
    assert sorted(exporting.sent) == []
    assert not results
    assert all(isinstance(errors[name], ParameterError) for name in NAMES)


def test_unused_data_does_not_change_messages(exporting: RecordedExport) -> None:
    """With other buckets, rows and categories that no split separates, every byte is the same."""
    agreed = job()
    parts = files(agreed)
    exporting.run(agreed, parts)
    seen = {pair: list(messages) for pair, messages in exporting.sent.items()}
    bank, shop = parts["bank"], parts["shop"]
    other_bank = replace(
        bank,
        part=replace(bank.part, bucket=np.where(bank.part.bucket < 0, -1, 17)),
        data="other data",
        # Splits separate ranks 0 and 1, and the second town.
        encoders=(
            Encoder("job", ColumnType("category"), ("cook", "clerk", "mason", "monk")),
            Encoder("town", ColumnType("category", one_hot=True), ("Rom", "Bonn", "Pisa")),
        ),
    )
    other_shop = replace(
        shop, part=replace(shop.part, bucket=np.where(shop.part.bucket < 0, -1, 5))
    )
    exporting.run(agreed, {**parts, "bank": other_bank, "shop": other_shop})
    assert exporting.sent == seen
    content = b"".join(seen["bank", "telecom"])
    assert b"Bonn" in content
    assert b"clerk" in content
    for secret in (b"Ulm", b"Jena", b"smith", b"nurse", b"judge", b"data of bank", b"stays"):
        assert secret not in content


def test_restricted_encoder_gives_the_same_splits(exporting: RecordedExport) -> None:
    agreed = job()
    parts = files(agreed)
    model: Model = exporting.run(agreed, parts)[0]["telecom"].result
    encoders = {encoder.column: encoder for encoder in model.encoders}
    assert encoders["job"].categories == ("cook", "clerk")
    assert encoders["town"].categories == ("", "Bonn", "")
    assert encoders["idle"].categories == ("yes", "no")  # the receiver's local encoder
    columns = np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, np.nan]])
    thresholds = [1.5, 0.5]
    full, restricted = (np.minimum(columns, n) for n in (5, len(encoders["job"].categories)))
    for threshold in thresholds:
        assert ((full >= threshold) == (restricted >= threshold)).all()


@pytest.mark.parametrize(
    ("sender", "changes", "message"),
    [
        ("bank", {"thresholds": [1.0]}, "thresholds of other tests"),
        ("bank", {"thresholds": ["NaN"] * 3}, "stated nonsense"),
        ("bank", {"encoders": []}, "other columns than the model's"),
        ("bank", {"unit": {"start": [0.0], "scale": 1.0}}, "in another's role"),
        ("shop", {"unit": None}, "in another's role"),
        ("shop", {"unit": {"start": [0.0], "scale": 0.0}}, "stated nonsense"),
        ("shop", {"colour": "red"}, "stated nonsense"),
    ],
)
def test_sender_of_invalid_message_is_named(
    exporting: RecordedExport,
    monkeypatch: pytest.MonkeyPatch,
    sender: str,
    changes: dict[str, Any],
    message: str,
) -> None:
    agreed = job()
    dump = PartExport.model_dump_json

    def dump_changed(part: PartExport) -> str:
        content = json.loads(dump(part))
        owner = "shop" if content["classes"] else "bank"
        return json.dumps({**content, **(changes if owner == sender else {})})

    monkeypatch.setattr(PartExport, "model_dump_json", dump_changed)
    _, errors = exporting.run(agreed, files(agreed))
    assert isinstance(errors["telecom"], PeerMisbehavedError)
    assert errors["telecom"].peer == sender
    assert message in str(errors["telecom"])
