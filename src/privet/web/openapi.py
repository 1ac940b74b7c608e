"""The endpoint described: as an OpenAPI document for programs, and as a page written from it."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from privet.data.encoder import Encoder
from privet.files.endpoint import Endpoint
from privet.version import __version__
from privet.web.asked import ID, Reader

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


def document(reader: Reader, endpoint: Endpoint, about: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of one service."""
    secured = endpoint.token is not None
    paths: dict[str, Any] = {
        "/predict": {
            "post": {
                "summary": "Predictions of the rows with these ids",
                "requestBody": {"required": True, "content": _json(_asked(reader))},
                "responses": {"200": _answer("Predictions, in order.", _told(reader)), **_errors()},
            }
        }
    }
    for path, summary, unready in (
        ("/live", "Whether the process answers", False),
        ("/ready", "Whether predictions are to be had", True),
        ("/health", "The same, with numbers", True),
        ("/metrics", "Metrics in Prometheus' text format", False),
        ("/openapi.json", "This document", False),
    ):
        answers = {"200": {"description": "Yes." if unready else "The answer."}}
        if unready:
            answers["503"] = {"description": "Not now. See Retry-After."}
        paths[path] = {"get": {"summary": summary, "responses": answers}}
        if secured and path in ("/live", "/ready"):
            paths[path]["get"]["security"] = []
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"Predictions of {about.get('job', 'a job')}", "version": __version__},
        "paths": paths,
    }
    if secured:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": _json(schema)}


def _errors() -> dict[str, Any]:
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
    return {code: _answer(text, schema) for code, text in _ERRORS.items()}


def _id(reader: Reader) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if len(reader.parts) == 1:
        return text
    count = len(reader.parts)
    return {
        "type": "array",
        "description": ", ".join(reader.parts),
        "items": text,
        "minItems": count,
        "maxItems": count,
    }


def _asked(reader: Reader) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "ids": {"type": "array", "items": _id(reader), "minItems": 1, "maxItems": reader.most_rows}
    }
    columns = {encoder.column: _cell(encoder) for encoder in reader.encoders()}
    properties["rows"] = {
        "type": "array",
        "description": "Instead of ids: rows with our own columns, which are not in our table yet.",
        "minItems": 1,
        "maxItems": reader.most_rows,
        "items": {
            "type": "object",
            "required": [ID, *columns],
            "additionalProperties": False,
            "properties": {ID: _id(reader), **columns},
        },
    }
    if reader.explains:
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


def _cell(encoder: Encoder) -> dict[str, Any]:
    """Return what a cell of a column may be."""
    kind = encoder.kind
    if kind.name == "number":
        return {"type": ["number", "string", "null"]}
    if kind.name == "boolean":
        return {"type": ["boolean", "null"]}
    written = kind.form or {"date": "2020-12-31", "time": "2020-12-31 23:59:59"}.get(kind.name)
    return {"type": ["string", "null"], **({"description": written} if written else {})}


def _told(reader: Reader) -> dict[str, Any]:
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
    if reader.explains:
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


def page(described: dict[str, Any]) -> str:
    """Return a page for people that says what an OpenAPI document says."""
    info = described["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(info['title'])}</h1>",
        f"<p>Privet {escape(info['version'])}. For programs: <code>/openapi.json</code>.</p>",
    ]
    if "security" in described:
        parts.append("<p>Show the token: <code>Authorization: Bearer TOKEN</code>.</p>")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} <code>{escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation['summary'])}.</p>")
            if "requestBody" in operation:
                parts += ["<h3>Request</h3>", _schema(operation["requestBody"])]
            parts.append("<h3>Answers</h3><dl>")
            for code, answer in operation["responses"].items():
                parts.append(f"<dt>{code}</dt><dd>{escape(answer['description'])}")
                if code == "200" and "content" in answer:
                    parts.append(_schema(answer))
                parts.append("</dd>")
            parts.append("</dl>")
    return "\n".join(parts) + "\n</html>\n"


def _schema(body: dict[str, Any]) -> str:
    schema = body["content"]["application/json"]["schema"]
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
