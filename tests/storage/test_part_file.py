"""Parts of models in files: read back as they were, or refused by name."""

from __future__ import annotations

import hashlib
import io
import json
import random
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privet.boosting.model import Feature
from privet.boosting.model_part import LabelUnit, ModelPart, PartExplanation
from privet.config.job import Job
from privet.data.encoding import Encoder
from privet.errors import ModelError
from privet.spec.column_types import CATEGORY, NUMBER
from privet.storage import json_records
from privet.storage.arrow_streams import append_seal
from privet.storage.model_part import (
    PART_VERSION,
    ModelPartFile,
    bound_part_bytes,
    load_part,
    save_part,
)


def part(unit: LabelUnit | None = None) -> ModelPart:
    return ModelPart(
        protocol="paper",
        task="regression",
        features=(Feature("a", "bank"), Feature("b", "shop"), Feature("c", "bank")),
        party="bank",
        feature=np.array([[0, 1], [2, 0], [1, 1]]),
        bucket=np.array([[3, -1], [0, 30], [-1, -1]]),
        threshold=np.array([[0.1, np.nan], [-np.inf, np.inf], [np.nan, np.nan]]),
        leaf_shares=np.array([[[0, 1, 2**32 - 1, 2**31]]] * 3, dtype=np.uint32),
        fraction_bits=20,
        label_unit=unit,
    )


def file(unit: LabelUnit | None = None, run: str = "a run") -> ModelPartFile:
    contact = {"address": "127.0.0.1:1", "fingerprint": "0" * 64}
    job = Job.parse(
        {
            "name": "churn",
            "task": "regression",
            "dealer": contact,
            "participants": [
                {"name": "bank", "address": "127.0.0.1:2", "fingerprint": "1" * 64},
                {"name": "shop", "role": "active", "address": "b:3", "fingerprint": "2" * 64},
            ],
        }
    )
    encoders = (Encoder("a", NUMBER), Encoder("c", CATEGORY, ("x", "y")))
    return ModelPartFile(part(unit), job, "data", run, encoders, ("no", "yes"))


@pytest.mark.parametrize("unit", [None, LabelUnit((0.1,), 4.0)])
def test_a_part_comes_back(tmp_path: Path, unit: LabelUnit | None) -> None:
    path = tmp_path / "bank.part"
    save_part(file(unit), path)
    found = load_part(path)
    for name, value in vars(part(unit)).items():
        assert np.array_equal(getattr(found.part, name), value, equal_nan=name == "threshold"), name
    assert found.part.leaf_shares.dtype == np.uint32
    assert (found.job, found.data, found.run) == (file().job, "data", "a run")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def explaining() -> ModelPartFile:
    """A part that explains, of a job that says so."""
    whole, found = file(), part()
    reasons = PartExplanation(
        left_fraction=np.array([[0.5, np.nan], [0.0, 1.0], [np.nan, np.nan]]),
        contributions=np.arange(24, dtype=np.uint32).reshape(3, 1, 2, 4),
        means=np.array([[1], [2], [2**32 - 1]], dtype=np.uint32),
    )
    terms = {**whole.job.model_dump(), "protocol": "masked", "explain": "feature"}
    found = replace(found, protocol="masked", explanation=reasons)
    return replace(whole, part=found, job=Job.parse(terms))


def test_a_part_that_explains_comes_back(tmp_path: Path) -> None:
    save_part(explaining(), tmp_path / "bank.part")
    found = load_part(tmp_path / "bank.part")
    assert found.job.explain == "feature"
    assert found.part.explanation is not None
    for name, value in vars(explaining().part.explanation).items():
        kept = getattr(found.part.explanation, name)
        assert kept.dtype == value.dtype
        assert np.array_equal(kept, value, equal_nan=name == "left_fraction"), name


@pytest.mark.parametrize("whole", [file(), explaining()], ids=["plain", "explaining"])
def test_the_room_that_a_part_takes(tmp_path: Path, whole: ModelPartFile) -> None:
    """Is known before it is trained, but for what stands before the tables."""
    params = {"tables": 3, "depth": 2}
    job = Job.parse({**whole.job.model_dump(), "params": params})
    save_part(replace(whole, job=job), tmp_path / "bank.part")
    stored = sum(batch.nbytes for batch in opened(tmp_path / "bank.part")[2])
    assert stored < bound_part_bytes(job) < stored + 3 * 3 * 1024


def test_a_part_explains_if_its_job_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    for wrong in (
        replace(explaining(), job=file().job),
        replace(explaining(), part=replace(explaining().part, explanation=None)),
    ):
        save_part(wrong, path)
        with pytest.raises(ModelError, match="it explains scores and its job does not say so"):
            load_part(path)


def test_shares_of_rows_that_pass_are_of_own_tests(tmp_path: Path) -> None:
    path, whole = tmp_path / "bank.part", explaining()
    assert whole.part.explanation is not None
    for share in (
        np.zeros((3, 2)),
        np.full((3, 2), np.nan),
        whole.part.explanation.left_fraction - 1,
    ):
        reasons = replace(whole.part.explanation, left_fraction=share)
        save_part(replace(whole, part=replace(whole.part, explanation=reasons)), path)
        with pytest.raises(ModelError, match="shares of rows that pass other tests than bank's"):
            load_part(path)


def test_a_models_name_is_that_of_its_run() -> None:
    assert file().model_id == file(LabelUnit((0.1,), 4.0)).model_id
    assert file().model_id != file(run="another").model_id


def opened(path: Path) -> tuple[Any, dict[str, Any], list[Any]]:
    """Return the schema, the header and the tables of a part, by Arrow alone."""
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        return reader.schema, json.loads(reader.schema.metadata[b"privet"]), list(reader)


def rewritten(
    path: Path,
    change: Callable[[dict[str, Any]], Any] = lambda header: None,
    batches: Callable[[list[Any]], list[Any]] = lambda batches: batches,
    **options: Any,
) -> None:
    """Change a part and seal it again, as somebody with another program might."""
    save_part(file(), path)
    schema, header, tables = opened(path)
    change(header)
    changed = batches(tables)
    schema = (changed[0].schema if changed else schema).with_metadata(
        {"privet": json.dumps(header)}
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in changed:
            writer.write(batch.replace_schema_metadata(schema.metadata))
    path.write_bytes(sink.getvalue() + hashlib.sha256(sink.getvalue()).digest())


def test_rewriting_leaves_the_seal_intact(tmp_path: Path) -> None:
    rewritten(tmp_path / "bank.part")
    assert load_part(tmp_path / "bank.part").model_id == file().model_id


def test_any_arrow_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    save_part(file(), path)
    _, header, tables = opened(path)
    assert (header["format"], header["version"], header["tables"]) == (
        "privet-part",
        PART_VERSION,
        3,
    )
    assert (header["part"]["depth"], header["part"]["outputs"]) == (2, 1)
    (row,) = tables[1].to_pylist()
    assert row == {
        "feature": [2, 0],
        "bucket": [0, 30],
        "threshold": [-np.inf, np.inf],
        "leaf_share": [[0, 1, 2**32 - 1, 2**31]],
    }


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    save_part(file(), path)
    content = path.read_bytes()
    place = content.index((2**31).to_bytes(4, "little"))
    path.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    with pytest.raises(ModelError, match="damaged: its content does not fit its seal"):
        load_part(path)
    path.write_bytes(content[:-1])
    with pytest.raises(ModelError, match="damaged: its content does not fit its seal"):
        load_part(path)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("format", "privet-model", "not a part file"),
        ("version", 99, f"part file version 99; this software reads version {PART_VERSION}: use"),
        ("colour", "red", "damaged: .*colour"),
        ("model", "another", "damaged: its name is not that of its content"),
        ("job", {}, "damaged: .*participants"),
        ("tables", 2, "damaged: 3 tables of 2"),
        ("part.party", "shop", "damaged: thresholds of other tests than shop's"),
        ("part.features", [{"name": "a", "owner": "bank"}], "not one of the 1"),
        ("part.fraction_bits", 64, "damaged: .*fraction_bits"),
        ("part.depth", 3, "damaged: other columns than its header calls for"),
        ("part.depth", 40, "damaged: .*depth"),
        ("part.outputs", 2, "damaged: other columns than its header calls for"),
    ],
)
def test_what_is_no_part_is_refused(tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    path = tmp_path / "bank.part"
    *steps, last = key.split(".")

    def change(header: Any) -> None:
        for step in steps:
            header = header[step]
        header[last] = value

    rewritten(path, change)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


def with_column(number: int, values: list[Any], kind: Any = None) -> Callable[[list[Any]], Any]:
    """Return a change of one column of every table."""

    def change(batches: list[Any]) -> list[Any]:
        field = batches[0].schema.field(number)
        column = pa.array([values], type=kind or field.type)
        new = pa.field(field.name, column.type, nullable=field.nullable)
        return [batch.set_column(number, new, column) for batch in batches]

    return change


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        (lambda batches: [], "damaged: 0 tables of 3"),
        (lambda batches: batches[:2], "damaged: 2 tables of 3"),
        (lambda batches: [b.slice(0, 0) for b in batches], "damaged: a batch that is not one"),
        (with_column(0, [0, 3]), "damaged: a test names a feature that is not one of the 3"),
        (with_column(0, [0, -1]), "damaged: a test names a feature that is not one of the 3"),
        (with_column(1, [3, 0]), "damaged: thresholds of other tests than bank's"),
        (with_column(2, [0.0, 0.0]), "damaged: thresholds of other tests than bank's"),
        (with_column(0, [0, None]), "damaged: .*missing"),
        (with_column(0, [0, 1], pa.list_(pa.int64(), 2)), "damaged: other columns"),
        (with_column(0, [0, 1], pa.list_(pa.int32())), "damaged: other columns"),
        (with_column(3, [[1, 2, 3, 4]] * 2, pa.list_(pa.list_(pa.uint32(), 4), 2)), "columns"),
    ],
)
def test_tables_that_cannot_be(
    tmp_path: Path, batches: Callable[[list[Any]], list[Any]], complaint: str
) -> None:
    path = tmp_path / "bank.part"
    rewritten(path, batches=batches)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


@pytest.mark.parametrize("bucket", [-2, 255])
def test_buckets_that_cannot_be(tmp_path: Path, bucket: int) -> None:
    path = tmp_path / "bank.part"
    impossible = part()
    impossible.bucket[impossible.bucket == (-1 if bucket < 0 else 3)] = bucket
    save_part(replace(file(), part=impossible), path)
    with pytest.raises(ModelError, match="damaged: a test names a bucket that cannot be"):
        load_part(path)


def test_compressed_tables_are_refused(tmp_path: Path) -> None:
    """They could claim any size, which Arrow would make room for."""
    path = tmp_path / "bank.part"
    rewritten(path, compression="zstd")
    with pytest.raises(ModelError, match="damaged: something else than plain rows"):
        load_part(path)


def test_extension_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"

    def as_tensor(batches: list[Any]) -> list[Any]:
        kind = pa.fixed_shape_tensor(pa.int32(), (2,))
        tensor = pa.ExtensionArray.from_storage(kind, pa.array([[0, 1]], type=kind.storage_type))
        return [batch.set_column(0, "feature", tensor) for batch in batches]

    rewritten(path, batches=as_tensor)
    with pytest.raises(ModelError, match="damaged: other columns than its header calls for"):
        load_part(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a part file of this software"),
        (b"{}", "not a part file of this software"),
        (b'{"format":"privet-model","version":1}', "not a part file of this software"),
        (
            b'{"seal":"0","format":"privet-part","version":2,"part":{}}',
            f"part file version 2; this software reads version {PART_VERSION}: use the release "
            "that wrote it, "
            "or train again",
        ),
        (b"\xff\xff\xff\xff", "not a part file of this software"),
        (b"\xff\xff\xff\xff" + bytes(100), "not a part file of this software"),
        (append_seal(b""), "not a part file of this software"),
        (append_seal(b"\xff\xff\xff\xff" + b"privet-part" * 9), "not a part file of this software"),
        (b"PK\x03\x04" + bytes(100), "not a part file of this software"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bank.part"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


def test_a_part_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_part(file(), tmp_path / "bank.part")
    monkeypatch.setattr(json_records, "MAX_FILE_BYTES", 100)
    with pytest.raises(ModelError, match="larger than the 100 bytes"):
        load_part(tmp_path / "bank.part")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file with a few bytes changed, cut out or put in."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(changed))
        wrong = chance.choice((b"\0", b"\xff", b"\xff" * 8, bytes(8), chance.randbytes(4)))
        how = chance.randrange(4)
        if how == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif how == 1:
            changed[place : place + len(wrong)] = wrong
        elif how == 2:
            changed[place:place] = wrong
        else:
            del changed[place : place + len(wrong)]
    return bytes(changed)


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    save_part(file(), path)
    content = path.read_bytes()
    chance = random.Random(0)
    for _ in range(3000):
        changed = damaged(content, chance)
        path.write_bytes(changed)
        if changed == content:
            load_part(path)
            continue
        with pytest.raises(ModelError):
            load_part(path)


def test_damage_under_a_new_seal_does_no_worse_than_an_error(tmp_path: Path) -> None:
    """Whoever makes a seal of its own gets Arrow to parse what it wants: that must be safe."""
    path = tmp_path / "bank.part"
    save_part(file(), path)
    stream = path.read_bytes()[:-32]
    chance = random.Random(1)
    loaded = 0
    for _ in range(3000):
        changed = damaged(stream, chance)
        path.write_bytes(changed + hashlib.sha256(changed).digest())
        try:
            found = load_part(path).part
        except ModelError:
            continue
        loaded += 1
        assert found.leaf_shares.shape == (3, 1, 4)
        found.find_rows_going_right(np.zeros((2, 5)))
    assert 0 < loaded < 1000


def test_encoders_make_the_features_that_are_tested(tmp_path: Path) -> None:
    other = replace(file(), encoders=(Encoder("a", NUMBER), Encoder("d", NUMBER)))
    save_part(other, tmp_path / "bank.part")
    with pytest.raises(ModelError, match="encoders make other features than it tests"):
        load_part(tmp_path / "bank.part")


def test_nothing_of_it_is_printed() -> None:
    assert "categories" not in repr(file())
    assert "yes" not in repr(file())
