"""Sealed Arrow streams with a header, and the decision tables of a model part in them.

    Arrow IPC stream      the schema, with the header as JSON in its metadata; then record batches
    SHA-256, 32 bytes     the seal: a digest of all bytes before it

Every Arrow library can read the stream, which ends before the seal. The seal detects accidental
changes. It does not protect against an attacker who can write the file, so reading trusts nothing:

- the size of the whole file is limited;
- the seal is compared before any parsing;
- the schema must be the one that the header implies, which excludes extension types and
  dictionaries;
- compressed batches, which could claim any size, are rejected;
- no value may be missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import FailFast, Field, ValidationError

from privet.boosting.model import Feature
from privet.boosting.model_part import LabelUnit, ModelPart, PartExplanation
from privet.errors import ModelError
from privet.objectives.regression import create_objective_with_outputs
from privet.schema import StrictSchema, format_validation_error
from privet.spec.params import MAX_TABLES, Task
from privet.storage.json_records import (
    FeatureRecord,
    Name,
    UnsupportedVersionError,
    format_unsupported_version,
    format_wrong_format,
    parse_format_header,
    read_bytes,
)

_KEY = b"privet"
_START = b"\xff\xff\xff\xff"  # starts every message of a stream
_END = _START + bytes(4)
_SEAL_BYTES = hashlib.sha256().digest_size
ColumnArrays = Mapping[str, npt.NDArray[Any]]


class ArrayColumn(NamedTuple):
    """A column with an array of this type and shape in every row."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


ArrayColumns = tuple[ArrayColumn, ...]
_Header = TypeVar("_Header", bound=StrictSchema)


def serialise_header(header: StrictSchema, columns: ArrayColumns) -> bytes:
    """Serialise the schema message, with the header in its metadata."""
    schema = _make_schema(columns).with_metadata({_KEY: header.model_dump_json().encode()})
    return bytes(schema.serialize())


def serialise_batch(values: ColumnArrays, columns: ArrayColumns) -> bytes:
    """Serialise rows as a record batch; the first axis of each array in `values` is the rows."""
    schema = _make_schema(columns)
    arrays = [_to_arrow(values[field.name], field.type) for field in schema]
    return bytes(pa.record_batch(arrays, schema=schema).serialize())


def append_seal(stream: bytes) -> bytes:
    """End a stream and append its seal."""
    content = stream + _END
    return content + hashlib.sha256(content).digest()


def read_sealed(
    path: Path,
    header_type: type[_Header],
    get_columns: Callable[[_Header], ArrayColumns],
    format_name: str,
    version: int,
) -> tuple[_Header, list[ColumnArrays]]:
    """Read a sealed file of one format and version; raise ModelError if it is not valid."""
    content = read_bytes(path)
    try:
        if not content.startswith(_START):
            # Earlier versions wrote JSON, which states its version.
            format_header = parse_format_header(content)
            if format_header is None or format_header.format != format_name:
                raise ModelError(format_wrong_format(format_name))
            raise UnsupportedVersionError(
                format_unsupported_version(format_name, format_header.version, version)
            )
        stream, seal = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
        if hashlib.sha256(stream).digest() != seal:
            has_format = format_name.encode() in stream
            problem = (
                "damaged: its content does not fit its seal"
                if has_format
                else format_wrong_format(format_name)
            )
            raise ModelError(problem)
        return parse_stream(stream, header_type, get_columns, format_name, version)
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from None


def parse_stream(
    stream: bytes,
    header_type: type[_Header],
    get_columns: Callable[[_Header], ArrayColumns],
    format_name: str,
    version: int,
) -> tuple[_Header, list[ColumnArrays]]:
    """Parse the header and the batches of a stream; raise ModelError if it is not valid."""
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
        schema_message = messages.read_next_message()
        if schema_message.type != "schema":  # parsing it as a schema would not be safe
            raise ModelError(format_wrong_format(format_name))
        schema = pa.ipc.read_schema(schema_message)
    except (pa.ArrowException, OSError, StopIteration, ValueError):
        raise ModelError(format_wrong_format(format_name)) from None
    header = _parse_header(schema, header_type, format_name, version)
    columns = get_columns(header)
    if not schema.equals(_make_schema(columns)):
        raise ModelError("damaged: other columns than its header calls for")
    try:
        return header, [_parse_batch(message, schema, columns) for message in messages]
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise ModelError(f"damaged: {error}") from None


def _parse_header(
    schema: Any, header_type: type[_Header], format_name: str, version: int
) -> _Header:
    metadata = schema.metadata or {}
    content = metadata.get(_KEY, b"")
    format_header = parse_format_header(content)
    if format_header is None or format_header.format != format_name:
        raise ModelError(format_wrong_format(format_name))
    if format_header.version != version:
        raise UnsupportedVersionError(
            format_unsupported_version(format_name, format_header.version, version)
        )
    try:
        return header_type.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"damaged: {format_validation_error(error)}") from None


def _parse_batch(message: Any, schema: Any, columns: ArrayColumns) -> ColumnArrays:
    if message.type != "record batch" or _is_compressed(bytes(message.metadata)):
        raise ModelError("damaged: something else than plain rows")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return {
        column.name: _to_numpy(array, column)
        for array, column in zip(batch.columns, columns, strict=True)
    }


@lru_cache(maxsize=32)
def _make_schema(columns: ArrayColumns) -> Any:
    return pa.schema(
        [pa.field(column.name, _make_arrow_type(column), nullable=False) for column in columns]
    )


def _make_arrow_type(column: ArrayColumn) -> Any:
    arrow_type = pa.from_numpy_dtype(column.dtype)
    for size in reversed(column.shape):
        arrow_type = pa.list_(pa.field("item", arrow_type, nullable=False), size)
    return arrow_type


def _to_arrow(values: npt.NDArray[Any], arrow_type: Any) -> Any:
    if not pa.types.is_fixed_size_list(arrow_type):
        # The conversions of Arrow import pandas if it is installed, which is slow.
        content = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(arrow_type, len(values), [None, content])
    inner = values.reshape(-1, *values.shape[2:])
    return pa.FixedSizeListArray.from_arrays(
        _to_arrow(inner, arrow_type.value_type), type=arrow_type
    )


def _to_numpy(array: Any, column: ArrayColumn) -> npt.NDArray[Any]:
    """Return the values of a column: (rows, *shape)."""
    rows = len(array)
    for _ in column.shape:
        _check_complete(array)
        array = array.flatten()
    _check_complete(array)
    content = array.buffers()[1] if len(array) else b""
    start = array.offset * column.dtype.itemsize
    values = np.frombuffer(content, dtype=column.dtype, count=len(array), offset=start)
    return values.reshape(
        rows, *column.shape
    ).copy()  # the buffer would keep the whole file in memory


def _check_complete(array: Any) -> None:
    if array.null_count:
        raise ModelError("damaged: a value is missing")


def _is_compressed(metadata: bytes) -> bool:
    """Tell whether a record batch declares its buffers compressed.

    Arrow would allocate any size that compressed buffers claim. Its messages are flatbuffers: field
    2 of the message is the batch, whose field 3, the compression, is absent without compression.
    """
    message = int.from_bytes(metadata[:4], "little")
    batch = _find_flatbuffer_field(metadata, message, 2)
    batch += int.from_bytes(metadata[batch : batch + 4], "little")
    return _find_flatbuffer_field(metadata, batch, 3) != 0


def _find_flatbuffer_field(buffer: bytes, table: int, number: int) -> int:
    """Return the offset of a field of a flatbuffer table; 0 if the field is absent."""
    layout = table - int.from_bytes(buffer[table : table + 4], "little", signed=True)
    size = int.from_bytes(buffer[layout : layout + 2], "little")
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    offset = int.from_bytes(buffer[layout + entry : layout + entry + 2], "little")
    return table + offset if offset else 0


MAX_OUTPUTS = 1000
_MAX_BUCKETS = 255


class LabelUnitRecord(StrictSchema):
    """The label's unit."""

    start: Annotated[list[float], Field(min_length=1, max_length=MAX_OUTPUTS)]
    scale: Annotated[float, Field(gt=0)]


class ModelPartHeader(StrictSchema):
    """A participant's part of a model, except the tables."""

    protocol: Name
    task: Task
    party: Name
    features: Annotated[list[FeatureRecord], Field(min_length=1), FailFast()]
    fraction_bits: Annotated[int, Field(ge=1, le=28)]
    unit: LabelUnitRecord | None
    depth: Annotated[int, Field(ge=1, le=10)]
    outputs: Annotated[int, Field(ge=1, le=MAX_OUTPUTS)]
    """The number of scores for each sample."""
    explains: bool = False
    """Whether tables contain explanations of scores."""
    gains: bool = False
    """Whether tables contain the gain of each level."""

    @classmethod
    def from_part(cls, part: ModelPart) -> ModelPartHeader:
        """Return the header of a model part."""
        unit = part.label_unit
        return cls(
            protocol=part.protocol,
            task=part.task,
            party=part.party,
            features=[FeatureRecord(name=f.name, owner=f.owner) for f in part.features],
            fraction_bits=part.fraction_bits,
            unit=None
            if unit is None
            else LabelUnitRecord(start=list(unit.initial_scores), scale=unit.scale),
            depth=part.depth,
            outputs=part.leaf_shares.shape[1],
            explains=part.explanation is not None,
            gains=part.gains is not None,
        )

    def make_columns(self) -> ArrayColumns:
        """Return the columns of a table's row; splits of other participants are -1 and NaN."""
        depth, outputs, leaves = self.depth, self.outputs, 1 << self.depth
        columns: ArrayColumns = (
            ArrayColumn("feature", np.dtype(np.int32), (depth,)),
            ArrayColumn("bucket", np.dtype(np.int16), (depth,)),
            ArrayColumn("threshold", np.dtype(np.float64), (depth,)),
            ArrayColumn("leaf_share", np.dtype(np.uint32), (outputs, leaves)),
        )
        if self.gains:
            columns = (*columns, ArrayColumn("gain", np.dtype(np.float64), (depth,)))
        if not self.explains:
            return columns
        return (
            *columns,
            ArrayColumn("pass_share", np.dtype(np.float64), (depth,)),
            ArrayColumn("contribution_share", np.dtype(np.uint32), (outputs, depth, leaves)),
            ArrayColumn("mean_share", np.dtype(np.uint32), (outputs,)),
        )


def bound_table_bytes(depth: int, outputs: int, *, has_explanations: bool = False) -> int:
    """Return an upper bound on the bytes of one table."""
    leaf_bytes = 4 * outputs << depth
    explanation_bytes = (
        1024 + 8 * depth + 4 * outputs + depth * leaf_bytes if has_explanations else 0
    )
    return 1280 + 24 * depth + leaf_bytes + explanation_bytes


def serialise_tables(part: ModelPart, first: int = 0) -> bytes:
    """Serialise the tables of a part from index `first` on, each as a batch."""
    columns = ModelPartHeader.from_part(part).make_columns()
    values: dict[str, npt.NDArray[Any]] = {
        "feature": part.feature.astype(np.int32),
        "bucket": part.bucket.astype(np.int16),
        "threshold": part.threshold,
        "leaf_share": part.leaf_shares,
    }
    if part.gains is not None:
        values["gain"] = part.gains
    if part.explanation is not None:
        values |= {
            "pass_share": part.explanation.left_fraction,
            "contribution_share": part.explanation.contributions,
            "mean_share": part.explanation.means,
        }
    return b"".join(
        serialise_batch({name: array[[table]] for name, array in values.items()}, columns)
        for table in range(first, part.n_tables)
    )


def build_part(header: ModelPartHeader, tables: Sequence[ColumnArrays]) -> ModelPart:
    """Build a part from its tables; raise ModelError if they are not valid."""
    if not 1 <= len(tables) <= MAX_TABLES:
        raise ModelError(f"{len(tables)} tables, and there are 1 to {MAX_TABLES}")
    if any(len(values) != 1 for table in tables for values in table.values()):
        raise ModelError("a batch that is not one table")
    feature, bucket, threshold, leaves, *optional_arrays = (
        np.concatenate([table[column.name] for table in tables]) for column in header.make_columns()
    )
    features = tuple(Feature(f.name, f.owner) for f in header.features)
    if feature.min() < 0 or feature.max() >= len(features):
        raise ModelError(f"a test names a feature that is not one of the {len(features)}")
    is_local = np.array([f.owner == header.party for f in features])[feature]
    is_local |= np.isposinf(threshold)  # levels without a split, which all participants know
    if not (
        np.array_equal(bucket >= 0, is_local) and np.array_equal(~np.isnan(threshold), is_local)
    ):
        raise ModelError(f"thresholds of other tests than {header.party}'s")
    if bucket.min() < -1 or bucket.max() >= _MAX_BUCKETS:
        raise ModelError("a test names a bucket that cannot be")
    create_objective_with_outputs(header.task, header.outputs)
    explanation, gains = None, optional_arrays.pop(0) if header.gains else None
    if gains is not None and (header.unit is None or not np.isfinite(gains).all()):
        raise ModelError("gains that are no numbers, or at somebody who is not told any")
    if optional_arrays:
        explanation = PartExplanation(*optional_arrays)
        if not np.array_equal(
            (explanation.left_fraction >= 0) & (explanation.left_fraction <= 1), is_local
        ):
            raise ModelError(f"shares of rows that pass other tests than {header.party}'s")
    unit = header.unit
    if unit is not None and len(unit.start) != header.outputs:
        raise ModelError(f"{len(unit.start)} starts of {header.outputs} scores")
    return ModelPart(
        protocol=header.protocol,
        task=header.task,
        features=features,
        party=header.party,
        feature=feature.astype(np.intp),
        bucket=bucket.astype(np.intp),
        threshold=threshold,
        leaf_shares=leaves,
        fraction_bits=header.fraction_bits,
        label_unit=None if unit is None else LabelUnit(tuple(unit.start), unit.scale),
        explanation=explanation,
        gains=gains,
    )
