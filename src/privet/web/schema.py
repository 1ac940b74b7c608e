"""Requests and responses of the HTTP endpoint in JSON, and its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast

import numpy as np
from pydantic import Field, ValidationError

from privet.config.party import EndpointConfig
from privet.config.table import TableSpec
from privet.data.encoding import Encoder
from privet.data.reader import Cell, InlineRows
from privet.errors import ParameterError
from privet.federation.prediction.prediction import ClassProbabilities, make_explanation_dict
from privet.federation.serving.request_queue import PredictionRequest, RowId
from privet.schema import StrictSchema, quote_untrusted
from privet.schema import format_validation_error as complaint
from privet.storage.json_records import Name
from privet.version import __version__

ID_FIELD = "id"
"""Field name of the id of an inline row."""
_PIECE = 10_000
"""Rows that are encoded as JSON at once."""


class TooManyRowsError(ParameterError):
    """More rows than the limit of a request."""


class _RequestBody(StrictSchema):
    ids: list[Name] | None = Field(default=None, min_length=1)
    rows: list[dict[Name, Cell | list[Name]]] | None = Field(default=None, min_length=1)
    explain: bool = False


class _RequestBodyWithIdParts(_RequestBody):
    ids: list[list[Name]] | None = Field(default=None, min_length=1)  # type: ignore[assignment]


@dataclass(frozen=True)
class RequestParser:
    """Parser of requests to one service."""

    id_parts: Sequence[str]
    """Names of the parts of an id."""
    max_rows: int
    has_explanations: bool
    """Whether requests can ask for feature attributions."""
    table_spec: TableSpec
    """Cell format of the local table, which inline rows follow."""
    get_encoders: Callable[[], Sequence[Encoder]]
    """Return the encoders of the local columns."""

    def parse(self, body: bytes) -> PredictionRequest:
        """Parse a request body; raise InputError if it is invalid."""
        try:
            body_type = _RequestBody if len(self.id_parts) == 1 else _RequestBodyWithIdParts
            request = body_type.model_validate_json(body)
        except ValidationError as error:
            raise ParameterError(self._format_cell_error(error) or complaint(error)) from None
        if (request.ids is None) == (request.rows is None):
            raise ParameterError("ids, rows: one of them is required, and not both")
        if request.explain and not self.has_explanations:
            raise ParameterError("explain: the job has no explanations")
        if request.rows is None:
            assert request.ids is not None
            self._check_ids(request.ids)
            return PredictionRequest(request.ids, request.explain)
        return self._read_rows(request.rows, request.explain)

    def _read_rows(
        self, rows: Sequence[dict[str, Cell | list[str]]], explain: bool
    ) -> PredictionRequest:
        """Return a request for inline rows with ids and local columns."""
        ids: list[Any] = []
        for number, row in enumerate(rows, start=1):
            identity = row.pop(ID_FIELD, None)
            is_text = isinstance(identity, str) and identity != "" and len(self.id_parts) == 1
            is_list = isinstance(identity, list) and len(self.id_parts) > 1
            if not (is_text or is_list):
                raise ParameterError(self._format_missing_id(number))
            list_column = next((name for name, cell in row.items() if isinstance(cell, list)), None)
            if list_column is not None:
                raise ParameterError(
                    f"rows: row {number}: {list_column!r} is a list, and not one cell"
                )
            ids.append(identity)
        self._check_ids(ids)
        inline_rows = InlineRows(self.table_spec, cast("Sequence[dict[str, Cell]]", rows))
        inline_rows.encode(self.get_encoders())
        return PredictionRequest(ids, explain, inline_rows)

    def _format_missing_id(self, number: int) -> str:
        expected = "text" if len(self.id_parts) == 1 else f"a list of {', '.join(self.id_parts)}"
        return f"rows: row {number} has no {ID_FIELD!r}, which is {expected}"

    def _format_cell_error(self, error: ValidationError) -> str | None:
        """Return one sentence on an invalid cell, instead of an error for each permitted type."""
        detail = error.errors(include_url=False)[0]
        if len(detail["loc"]) < 4 or detail["loc"][0] != "rows" or detail["loc"][3] == "[key]":
            return None
        _, row, column, *_ = detail["loc"]
        if column == ID_FIELD:
            return self._format_missing_id(int(row) + 1)
        problem = f"{quote_untrusted(column)!r} is {quote_untrusted(repr(detail['input']))}"
        return (
            f"rows: row {int(row) + 1}: {problem}: write text, a number that is finite, true or "
            "false, or null where it is missing"
        )

    def _check_ids(self, ids: Sequence[RowId]) -> None:
        if len(ids) > self.max_rows:
            raise TooManyRowsError(
                f"{len(ids):,} rows are more than {self.max_rows:,}: ask for fewer at a time"
            )
        if len(self.id_parts) > 1 and any(len(identity) != len(self.id_parts) for identity in ids):
            raise ParameterError(f"ids: each is a list of {', '.join(self.id_parts)}")


def make_response_content(request: PredictionRequest) -> dict[str, Any]:
    """Return the response content of a request with known ids; `iter_json` encodes it."""
    classes = request.classes
    answer: dict[str, Any] = {"predictions": request.predictions}
    if classes:
        probabilities = ClassProbabilities.from_predictions(classes, request.predictions)
        answer = {
            "classes": list(classes),
            "predictions": probabilities.choose_likeliest_classes(),
            "probabilities": probabilities.probabilities,
        }
    if request.explain and request.explanation is not None:
        answer |= make_explanation_dict(request.explanation)
    return answer


def iter_json(content: Any) -> Iterator[bytes]:
    """Yield JSON in pieces, of dictionaries, lists and arrays.

    Encoding a piece blocks all threads of the process, including heartbeats. Encoded at once, the
    explanations of millions of rows would take so long that peers would time out.
    """
    if isinstance(content, dict):
        yield b"{"
        for number, (key, value) in enumerate(content.items()):
            yield (b"," if number else b"") + _dump_json(key) + b":"
            yield from iter_json(value)
        yield b"}"
    elif isinstance(content, list | np.ndarray) and len(content) > _PIECE:
        for start in range(0, len(content), _PIECE):
            yield (b"," if start else b"[") + _dump_json(content[start : start + _PIECE])[1:-1]
        yield b"]"
    else:
        yield _dump_json(content)


def _dump_json(value: Any) -> bytes:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


_ERRORS = {
    "400": "What was asked for cannot be understood.",
    "401": "The token is missing or wrong.",
    "403": "The host name or the page that asks is not one of ours.",
    "404": "Ids that not all participants have.",
    "408": "The request took too long to arrive.",
    "413": "Too many bytes or rows.",
    "415": "Not JSON.",
    "429": "Too many requests, or too many that wait. See Retry-After.",
    "503": "The other participants are not there. See Retry-After.",
    "504": "Not answered before the deadline.",
}


def make_openapi_document(
    request_parser: RequestParser, endpoint: EndpointConfig, job_info: dict[str, Any]
) -> dict[str, Any]:
    """Return the OpenAPI document of one service."""
    has_token = endpoint.token is not None
    paths: dict[str, Any] = {
        "/predict": {
            "post": {
                "summary": "Predictions of the rows with these ids",
                "requestBody": {
                    "required": True,
                    "content": _wrap_schema(_make_request_schema(request_parser)),
                },
                "responses": {
                    "200": _make_response(
                        "Predictions, in order.", _make_response_schema(request_parser)
                    ),
                    **_make_error_responses(),
                },
            }
        }
    }
    for path, summary, can_be_unready in (
        ("/live", "Whether the process answers", False),
        ("/ready", "Whether predictions are to be had", True),
        ("/health", "The same, with numbers", True),
        ("/metrics", "Metrics in Prometheus' text format", False),
        ("/openapi.json", "This document", False),
    ):
        responses = {"200": {"description": "Yes." if can_be_unready else "The answer."}}
        if can_be_unready:
            responses["503"] = {"description": "Not now. See Retry-After."}
        paths[path] = {"get": {"summary": summary, "responses": responses}}
        if has_token and path in ("/live", "/ready"):
            paths[path]["get"]["security"] = []
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"Predictions of {job_info.get('job', 'a job')}", "version": __version__},
        "paths": paths,
    }
    if has_token:
        document["components"] = {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
        document["security"] = [{"token": []}]
    return document


def _wrap_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _make_response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": _wrap_schema(schema)}


def _make_error_responses() -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {"type": "string"},
            "unknown": {
                "type": "object",
                "description": "Ids that are not known to all, and who lacks them, if it shows.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        },
    }
    return {code: _make_response(text, schema) for code, text in _ERRORS.items()}


def _make_id_schema(request_parser: RequestParser) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if len(request_parser.id_parts) == 1:
        return text
    count = len(request_parser.id_parts)
    return {
        "type": "array",
        "description": ", ".join(request_parser.id_parts),
        "items": text,
        "minItems": count,
        "maxItems": count,
    }


def _make_request_schema(request_parser: RequestParser) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "ids": {
            "type": "array",
            "items": _make_id_schema(request_parser),
            "minItems": 1,
            "maxItems": request_parser.max_rows,
        }
    }
    columns = {
        encoder.column: _make_cell_schema(encoder) for encoder in request_parser.get_encoders()
    }
    properties["rows"] = {
        "type": "array",
        "description": "Instead of ids: rows with our own columns, which are not in our table yet.",
        "minItems": 1,
        "maxItems": request_parser.max_rows,
        "items": {
            "type": "object",
            "required": [ID_FIELD, *columns],
            "additionalProperties": False,
            "properties": {ID_FIELD: _make_id_schema(request_parser), **columns},
        },
    }
    if request_parser.has_explanations:
        properties["explain"] = {
            "type": "boolean",
            "default": False,
            "description": "Whether to tell, too, what contributes to each prediction.",
        }
    return {
        "type": "object",
        "oneOf": [{"required": ["ids"]}, {"required": ["rows"]}],
        "additionalProperties": False,
        "properties": properties,
    }


def _make_cell_schema(encoder: Encoder) -> dict[str, Any]:
    """Return the JSON schema of a cell."""
    column_type = encoder.column_type
    if column_type.name == "number":
        return {"type": ["number", "string", "null"]}
    if column_type.name == "boolean":
        return {"type": ["boolean", "null"]}
    example = column_type.date_format or {"date": "2020-12-31", "time": "2020-12-31 23:59:59"}.get(
        column_type.name
    )
    return {"type": ["string", "null"], **({"description": example} if example else {})}


def _make_response_schema(request_parser: RequestParser) -> dict[str, Any]:
    numbers = {"type": "array", "items": {"type": "number"}}
    properties: dict[str, Any] = {
        "predictions": {
            "type": "array",
            "description": "The likeliest class of each row, or a number.",
            "items": {"type": ["string", "number"]},
        },
        "classes": {"type": "array", "items": {"type": "string"}},
        "probabilities": {
            "type": "array",
            "description": "Of each row, those of all classes.",
            "items": numbers,
        },
    }
    if request_parser.has_explanations:
        properties["contributions"] = {
            "type": "object",
            "description": "Of each feature or participant, to the scores of all rows.",
        }
        properties["base"] = {"description": "What they are added to."}
    return {"type": "object", "required": ["predictions"], "properties": properties}


_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em;color:#222}"
    "pre{background:#f4f4f4;padding:.8em;overflow:auto;font-size:13px}"
    "code{background:#f4f4f4}dt{font-weight:bold}h2{border-top:1px solid #ccc;padding-top:.6em}"
)


def render_docs_page(openapi_document: dict[str, Any]) -> str:
    """Render an OpenAPI document as an HTML page."""
    info = openapi_document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(info['title'])}</h1>",
        f"<p>Privet {escape(info['version'])}. For programs: <code>/openapi.json</code>.</p>",
    ]
    if "security" in openapi_document:
        parts.append("<p>Show the token: <code>Authorization: Bearer TOKEN</code>.</p>")
    for path, methods in openapi_document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} <code>{escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation['summary'])}.</p>")
            if "requestBody" in operation:
                parts += ["<h3>Request</h3>", _render_schema(operation["requestBody"])]
            parts.append("<h3>Answers</h3><dl>")
            for code, response in operation["responses"].items():
                parts.append(f"<dt>{code}</dt><dd>{escape(response['description'])}")
                if code == "200" and "content" in response:
                    parts.append(_render_schema(response))
                parts.append("</dd>")
            parts.append("</dl>")
    return "\n".join(parts) + "\n</html>\n"


def _render_schema(body: dict[str, Any]) -> str:
    schema = body["content"]["application/json"]["schema"]
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
