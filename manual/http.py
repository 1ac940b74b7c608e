"""The page on the endpoint of `privet serve`, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manual.markdown import table
from privet.config.party import EndpointConfig
from privet.config.table import TableSpec
from privet.data.encoding import Encoder
from privet.spec.column_types import ColumnType
from privet.web.schema import RequestParser, make_openapi_document


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    parser = RequestParser(
        id_parts=("id",),
        max_rows=EndpointConfig().most_rows,
        has_explanations=True,
        table_spec=TableSpec(path="table.csv"),
        get_encoders=lambda: (
            Encoder("age", ColumnType("number")),
            Encoder("opened", ColumnType("date")),
        ),
    )
    document = make_openapi_document(parser, EndpointConfig(token="token"), {"job": "churn"})  # noqa: S106
    yield "# HTTP\n"
    yield (
        "What the recipient of predictions answers while `privet serve` runs. Every service has "
        "the same as `/openapi.json`, for programs, and as the page `/docs`, with the columns of "
        "its own rows; here these are `age` and `opened`. Where the endpoint has a token, all but "
        "`/live` and `/ready` take `Authorization: Bearer TOKEN`. [The tutorial](../tutorial.md) "
        "has examples; limits are in [party.toml](party.md#endpoint).\n"
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation['summary']}.\n"
            if "requestBody" in operation:
                yield from _shape("asked", operation["requestBody"])
            responses = operation["responses"]
            yield from table(
                ("answer", "when"),
                [(code, response["description"]) for code, response in responses.items()],
            )
            if "content" in responses["200"]:
                yield from _shape("told", responses["200"])
                yield (
                    'All other answers are `{"error": ...}`; a 404 also has `unknown`: ids, by who '
                    "lacks them where that is known.\n"
                )


def _shape(title: str, body: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of a JSON object as a table."""
    schema = body["content"]["application/json"]["schema"]
    yield from table(
        (title, "is", ""),
        [
            (f"`{name}`", _type(inner), inner.get("description", ""))
            for name, inner in schema["properties"].items()
        ],
    )


def _type(schema: dict[str, Any]) -> str:
    kinds = schema.get("type", "any value")
    if kinds == "array":
        return f"list of {_type(schema['items'])}"
    if kinds == "object" and "properties" in schema:
        inner = (f"`{key}`: {_type(each)}" for key, each in schema["properties"].items())
        return f"object with {'; '.join(inner)}"
    return kinds if isinstance(kinds, str) else " or ".join(kinds)
