"""The page on the Python API, from signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import privet
from manual.fields import render_keys
from privet.estimators.base import FederatedEstimator

_ELSEWHERE = {
    "Params": "[job.toml](job.md#params)",
    "Report": "[reports](reports.md)",
    "Comparison": "[reports](reports.md)",
}
"""Models whose keys another page lists."""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Python\n"
    yield (
        "What `import privet` offers. Everything else is for [those who change it]"
        "(../development.md): its names may move. Examples: "
        "[the data scientist's guide](../guides/data-scientist.md).\n"
    )
    for name in privet.__all__:
        if not name.startswith("__"):
            yield f"## {name}\n"
            yield from _name(name, getattr(privet, name))
    yield "## FederatedEstimator\n"
    yield "What `PrivetClassifier` and `PrivetRegressor` share; it is not imported by itself.\n"
    yield _words(FederatedEstimator)
    yield "## \\_\\_version\\_\\_\n\nThe version, as text."


def _name(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield f"One of: {', '.join(f'`{each}`' for each in value)}.\n"
        return
    is_model = inspect.isclass(value) and issubclass(value, BaseModel)
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    if not is_model and not is_error:
        yield _code(f"{name}{_signature(value)}")
    yield _words(value)
    if is_model and name in _ELSEWHERE:
        yield f"Its keys are in {_ELSEWHERE[name]}.\n"
    elif is_model:
        yield from render_keys(value, {})
    if inspect.isclass(value) and not is_error:
        methods = "\n".join(_methods(value))
        if methods:
            yield _code(methods)


def _methods(kind: type) -> Iterator[str]:
    """Yield the signature and summary of each public method and property."""
    for name, member in inspect.getmembers(kind):
        inner = inspect.unwrap(member) if callable(member) else getattr(member, "fget", None)
        is_public = str(getattr(inner, "__module__", "")).startswith("privet.")
        if name.startswith("_") or not is_public or not getattr(inner, "__doc__", None):
            continue
        signature = _signature(inner) if callable(member) else ""
        yield f".{name}{signature}\n    {str(inner.__doc__).splitlines()[0]}"


def _signature(value: Any) -> str:
    """Return a signature without types, wrapped."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(value).parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(inspect.Signature(parameters))
    if len(text) < 80:
        return text
    has_keyword_only = any(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    separator = (
        "    *,\n" if has_keyword_only and parameters[0].kind is parameters[0].KEYWORD_ONLY else ""
    )
    return "(\n" + separator + "".join(f"    {parameter},\n" for parameter in parameters) + ")"


def _words(value: Any) -> str:
    """Return a docstring: paragraphs as Markdown, and the list of parameters as plain text."""
    text, listed, more = (inspect.getdoc(value) or "").partition("\n\nParameters\n")
    text = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    return text + "\n" + ("\n" + _code(f"Parameters\n{more}") if listed else "")


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"
