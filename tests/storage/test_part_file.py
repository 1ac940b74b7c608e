"""Files of model parts: read back exactly, or rejected with a reason."""

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
def test_part_is_read_back_exactly(tmp_path: Path, unit: LabelUnit | None) -> None:
    path = tmp_path / "bank.part"
    save_part(file(unit), path)
    found = load_part(path)
    for name, value in vars(part(unit)).items():
        assert np.array_equal(getattr(found.part, name), value, equal_nan=name == "threshold"), name
    assert found.part.leaf_shares.dtype == np.uint32
    assert (found.job, found.data, found.run) == (file().job, "data", "a run")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def file_with_explanations() -> ModelPartFile:
    """Return a part with explanations, of a job that requests them."""
    part_file, found = file(), part()
    explanation = PartExplanation(
        left_fraction=np.array([[0.5, np.nan], [0.0, 1.0], [np.nan, np.nan]]),
        contributions=np.arange(24, dtype=np.uint32).reshape(3, 1, 2, 4),
        means=np.array([[1], [2], [2**32 - 1]], dtype=np.uint32),
    )
    job_settings = {**part_file.job.model_dump(), "protocol": "masked", "explain": "feature"}
    found = replace(found, protocol="masked", explanation=explanation)
    return replace(part_file, part=found, job=Job.parse(job_settings))


def test_part_with_explanations_is_read_back_exactly(tmp_path: Path) -> None:
    save_part(file_with_explanations(), tmp_path / "bank.part")
    found = load_part(tmp_path / "bank.part")
    assert found.job.explain == "feature"
    assert found.part.explanation is not None
    for name, value in vars(file_with_explanations().part.explanation).items():
        kept = getattr(found.part.explanation, name)
        assert kept.dtype == value.dtype
        assert np.array_equal(kept, value, equal_nan=name == "left_fraction"), name


@pytest.mark.parametrize(
    "part_file",
    [file(), file_with_explanations()],
    ids=["without explanations", "with explanations"],
)
def test_bound_on_bytes_holds(tmp_path: Path, part_file: ModelPartFile) -> None:
    """The bound holds before training, except for the header before the tables."""
    params = {"tables": 3, "depth": 2}
    job = Job.parse({**part_file.job.model_dump(), "params": params})
    save_part(replace(part_file, job=job), tmp_path / "bank.part")
    stored = sum(batch.nbytes for batch in read_with_arrow(tmp_path / "bank.part")[2])
    assert stored < bound_part_bytes(job) < stored + 3 * 3 * 1024


def test_part_has_explanations_exactly_if_its_job_requests_them(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    for wrong in (
        replace(file_with_explanations(), job=file().job),
        replace(
            file_with_explanations(), part=replace(file_with_explanations().part, explanation=None)
        ),
    ):
        save_part(wrong, path)
        with pytest.raises(ModelError, match="it explains scores and its job does not say so"):
            load_part(path)


def test_left_fractions_are_of_local_splits(tmp_path: Path) -> None:
    path, part_file = tmp_path / "bank.part", file_with_explanations()
    assert part_file.part.explanation is not None
    for left_fraction in (
        np.zeros((3, 2)),
        np.full((3, 2), np.nan),
        part_file.part.explanation.left_fraction - 1,
    ):
        explanation = replace(part_file.part.explanation, left_fraction=left_fraction)
        save_part(replace(part_file, part=replace(part_file.part, explanation=explanation)), path)
        with pytest.raises(ModelError, match="shares of rows that pass other tests than bank's"):
            load_part(path)


def test_model_id_depends_on_the_run() -> None:
    assert file().model_id == file(LabelUnit((0.1,), 4.0)).model_id
    assert file().model_id != file(run="another").model_id


def read_with_arrow(path: Path) -> tuple[Any, dict[str, Any], list[Any]]:
    """Return the schema, the header and the tables of a part, using only Arrow."""
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        return reader.schema, json.loads(reader.schema.metadata[b"privet"]), list(reader)


def rewrite(
    path: Path,
    change: Callable[[dict[str, Any]], Any] = lambda header: None,
    batches: Callable[[list[Any]], list[Any]] = lambda batches: batches,
    **options: Any,
) -> None:
    """Change a part and seal it again, as another program could."""
    save_part(file(), path)
    schema, header, tables = read_with_arrow(path)
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
    rewrite(tmp_path / "bank.part")
    assert load_part(tmp_path / "bank.part").model_id == file().model_id


def test_any_arrow_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    save_part(file(), path)
    _, header, tables = read_with_arrow(path)
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


def test_changed_bit_is_detected(tmp_path: Path) -> None:
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
def test_invalid_headers_are_rejected(tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    path = tmp_path / "bank.part"
    *steps, last = key.split(".")

    def change(header: Any) -> None:
        for step in steps:
            header = header[step]
        header[last] = value

    rewrite(path, change)
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
def test_invalid_tables_are_rejected(
    tmp_path: Path, batches: Callable[[list[Any]], list[Any]], complaint: str
) -> None:
    path = tmp_path / "bank.part"
    rewrite(path, batches=batches)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


@pytest.mark.parametrize("bucket", [-2, 255])
def test_invalid_buckets_are_rejected(tmp_path: Path, bucket: int) -> None:
    path = tmp_path / "bank.part"
    impossible = part()
    impossible.bucket[impossible.bucket == (-1 if bucket < 0 else 3)] = bucket
    save_part(replace(file(), part=impossible), path)
    with pytest.raises(ModelError, match="damaged: a test names a bucket that cannot be"):
        load_part(path)


def test_compressed_tables_are_rejected(tmp_path: Path) -> None:
    """They could claim any size, which Arrow would allocate."""
    path = tmp_path / "bank.part"
    rewrite(path, compression="zstd")
    with pytest.raises(ModelError, match="damaged: something else than plain rows"):
        load_part(path)


def test_extension_types_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"

    def as_tensor(batches: list[Any]) -> list[Any]:
        kind = pa.fixed_shape_tensor(pa.int32(), (2,))
        tensor = pa.ExtensionArray.from_storage(kind, pa.array([[0, 1]], type=kind.storage_type))
        return [batch.set_column(0, "feature", tensor) for batch in batches]

    rewrite(path, batches=as_tensor)
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
def test_other_files_are_rejected(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bank.part"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


def test_too_large_part_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_part(file(), tmp_path / "bank.part")
    monkeypatch.setattr(json_records, "MAX_FILE_BYTES", 100)
    with pytest.raises(ModelError, match="larger than the 100 bytes"):
        load_part(tmp_path / "bank.part")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return content with a few bytes changed, removed or inserted."""
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


def test_every_damage_is_detected(tmp_path: Path) -> None:
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


def test_damage_under_a_new_seal_only_causes_a_model_error(tmp_path: Path) -> None:
    """With a new seal, an attacker can make Arrow parse any content, which must be safe."""
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


def test_encoders_must_produce_the_split_features(tmp_path: Path) -> None:
    other = replace(file(), encoders=(Encoder("a", NUMBER), Encoder("d", NUMBER)))
    save_part(other, tmp_path / "bank.part")
    with pytest.raises(ModelError, match="encoders make other features than it tests"):
        load_part(tmp_path / "bank.part")


def test_repr_shows_no_data() -> None:
    assert "categories" not in repr(file())
    assert "yes" not in repr(file())
