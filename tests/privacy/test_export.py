"""A joined model: its receiver gets what it needs, and nobody else gets anything."""

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
    contacts = {name: (f"{name}:1", f"{k}" * 64) for k, name in enumerate((*NAMES, "dealer"))}
    roles = {"shop": "active"}
    return Job.parse(
        {
            "name": "joint",
            "task": "classification",
            "export": export,
            "params": {"tables": 2, "depth": 3},
            "dealer": {"address": contacts["dealer"][0], "fingerprint": contacts["dealer"][1]},
            "participants": [
                {
                    "name": name,
                    "role": roles.get(name, "passive"),
                    "address": contacts[name][0],
                    "fingerprint": contacts[name][1],
                }
                for name in NAMES
            ],
        }
    )


def files(agreed: Job) -> dict[str, ModelPartFile]:
    """Return the parts of a model, as a training would leave them."""
    rng = np.random.default_rng(5)
    found = {}
    for name in NAMES:
        ours = np.array([f.owner == name for f in FEATURES])[FEATURE]
        part = ModelPart(
            protocol="masked",
            task="classification",
            features=FEATURES,
            party=name,
            feature=FEATURE,
            bucket=np.where(ours, BUCKET, -1),
            threshold=np.where(ours, THRESHOLD, np.nan),
            leaf_shares=rng.integers(0, 1 << 32, (2, 1, 8), dtype=np.uint32),
            fraction_bits=16,
            label_unit=LabelUnit() if name == "shop" else None,
        )
        classes = ("stays", "leaves") if name == "shop" else ()
        found[name] = ModelPartFile(part, agreed, f"data of {name}", "run", ENCODERS[name], classes)
    return found


class Watched:
    """Three participants, and all that they send each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[tuple[str, str], list[bytes]] = {}
        send = MemoryChannel.send

        def watched(
            channel: MemoryChannel, peer: str, array: Array, tag: int = 0, stream: int = 0
        ) -> None:
            self.sent.setdefault((channel.name, peer), []).append(array.tobytes())
            send(channel, peer, array, tag, stream)

        monkeypatch.setattr(MemoryChannel, "send", watched)

    def run(
        self, agreed: Job, parts: dict[str, ModelPartFile]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Hand a model over; return what each has then, and what went wrong where."""
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
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.mark.parametrize("receiver", NAMES)
def test_it_goes_to_the_receiver_alone(watched: Watched, receiver: str) -> None:
    agreed = job(receiver)
    parts = files(agreed)
    results, errors = watched.run(agreed, parts)
    assert not errors
    whole = join_parts([parts[name].part for name in NAMES])
    model: Model = results[receiver].result
    assert np.array_equal(model.threshold, THRESHOLD)
    assert np.array_equal(model.leaf_values, whole.leaf_values)
    assert model.classes == ("stays", "leaves")
    assert [results[name].result for name in NAMES if name != receiver] == [None, None]
    assert sorted({to for _, to in watched.sent}) == [receiver]
    for name in NAMES:
        assert {entry.recipients for entry in results[name].ledger.entries} == {(receiver,)}


def test_nothing_is_sent_unless_the_job_says_so(watched: Watched) -> None:
    agreed = job("")
    results, errors = watched.run(agreed, files(agreed))
    assert sorted(watched.sent) == []
    assert not results
    assert all(isinstance(errors[name], ParameterError) for name in NAMES)


def test_what_is_not_needed_explains_what_is_seen(watched: Watched) -> None:
    """With other buckets, rows and categories that no test tells apart, every byte is the same."""
    agreed = job()
    parts = files(agreed)
    watched.run(agreed, parts)
    seen = {pair: list(messages) for pair, messages in watched.sent.items()}
    bank, shop = parts["bank"], parts["shop"]
    other_bank = replace(
        bank,
        part=replace(bank.part, bucket=np.where(bank.part.bucket < 0, -1, 17)),
        data="other data",
        # Ranks 0 and 1 are told apart; of the towns, the second.
        encoders=(
            Encoder("job", ColumnType("category"), ("cook", "clerk", "mason", "monk")),
            Encoder("town", ColumnType("category", one_hot=True), ("Rom", "Bonn", "Pisa")),
        ),
    )
    other_shop = replace(
        shop, part=replace(shop.part, bucket=np.where(shop.part.bucket < 0, -1, 5))
    )
    watched.run(agreed, {**parts, "bank": other_bank, "shop": other_shop})
    assert watched.sent == seen
    content = b"".join(seen["bank", "telecom"])
    assert b"Bonn" in content
    assert b"clerk" in content
    for secret in (b"Ulm", b"Jena", b"smith", b"nurse", b"judge", b"data of bank", b"stays"):
        assert secret not in content


def test_an_encoder_that_knows_less_does_the_same(watched: Watched) -> None:
    agreed = job()
    parts = files(agreed)
    model: Model = watched.run(agreed, parts)[0]["telecom"].result
    told = {encoder.column: encoder for encoder in model.encoders}
    assert told["job"].categories == ("cook", "clerk")
    assert told["town"].categories == ("", "Bonn", "")
    assert told["idle"].categories == ("yes", "no")  # the receiver's own
    columns = np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, np.nan]])
    thresholds = [1.5, 0.5]
    whole, less = (np.minimum(columns, size) for size in (5, len(told["job"].categories)))
    for threshold in thresholds:
        assert ((whole >= threshold) == (less >= threshold)).all()


@pytest.mark.parametrize(
    ("who", "changes", "complaint"),
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
def test_whoever_sends_nonsense_is_named(
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    changes: dict[str, Any],
    complaint: str,
) -> None:
    agreed = job()
    dump = PartExport.model_dump_json

    def nonsense(contribution: PartExport) -> str:
        said = json.loads(dump(contribution))
        sender = "shop" if said["classes"] else "bank"
        return json.dumps({**said, **(changes if sender == who else {})})

    monkeypatch.setattr(PartExport, "model_dump_json", nonsense)
    _, errors = watched.run(agreed, files(agreed))
    assert isinstance(errors["telecom"], PeerMisbehavedError)
    assert errors["telecom"].peer == who
    assert complaint in str(errors["telecom"])
