"""The keys of a configuration file or a report, from the model that reads or writes it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from manual.markdown import table
from privet.schema import Config

_TYPE_NAMES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
}


Titles = Mapping[type[BaseModel], str]
"""Section title of each model; a link, if the section is on another page."""


def render_section(
    model: type[BaseModel], titles: Titles, skip: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a section on a model: its docstring, and its keys as a table."""
    yield f"## {titles[model]}\n"
    for paragraph in (inspect.getdoc(model) or "").split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    yield from render_keys(model, titles, skip)


def render_keys(model: type[BaseModel], titles: Titles, skip: Sequence[str] = ()) -> Iterator[str]:
    """Yield the keys of a model as a table; raise LookupError for a key without docstring."""
    descriptions = describe_fields(model)
    rows = []
    local_names = [name for name in model.__annotations__ if name in model.model_fields]
    for name in dict.fromkeys([*local_names, *model.model_fields]):
        field = model.model_fields[name]
        if name in skip:
            continue
        if not descriptions[name]:
            raise LookupError(f"{model.__name__}.{name} has no docstring: describe it")
        rows.append(
            [f"`{name}`", format_type(field, titles), format_default(field), descriptions[name]]
        )
    header = ["key", "is", "by default", "means"]
    if not issubclass(model, Config):  # a report contains all keys
        for row in (header, *rows):
            del row[2]
    yield from table(header, rows)


def describe_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the text on each field: its description, then its docstring."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _docstrings(base)
    for name, field in model.model_fields.items():
        text = " ".join(filter(None, (field.description, found.get(name))))
        found[name] = text
    return found


def _docstrings(model: type) -> dict[str, str]:
    """Return the docstrings of the fields in a class body, which Python discards."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, words in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            found[field.target.id] = " ".join(str(words.value.value).split())
    return found


def format_default(field: FieldInfo) -> str:
    """Return the default of a key, or "required"."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{format_toml(value)}`"


def format_toml(value: object) -> str:
    """Return a value in TOML."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(format_toml, value))}]"
    return f"{value:_}" if isinstance(value, int) and abs(value) > 9999 else str(value)


def format_type(field: FieldInfo, titles: Titles) -> str:
    """Return the permitted values of a field in words, with limits."""
    return _format_annotation(field.annotation, titles, field.metadata)


def _format_annotation(annotation: Any, titles: Titles, limits: Sequence[Any] = ()) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inside = [m for each in inner[1:] for m in getattr(each, "metadata", [each])]
        words = _format_annotation(inner[0], titles, inside)
    elif origin in (Union, types.UnionType):
        parts = [
            _format_annotation(each, titles, limits) for each in inner if each is not type(None)
        ]
        words = ", or ".join(dict.fromkeys(parts))
    elif origin is Literal:
        words = " or ".join(f"`{format_toml(value)}`" for value in inner)
    elif origin is list:
        words = f"list of {_several(_format_annotation(inner[0], titles))}"
    elif origin is tuple:
        words = " and ".join(_format_annotation(each, titles) for each in inner if each is not ...)
    elif origin in (dict, Mapping):
        words = f"{_several(_format_annotation(inner[1], titles))} by name"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        title = titles[annotation]
        words = title if title.endswith(")") else f"[{title}](#{anchor(title)})"
    else:
        words = _TYPE_NAMES[annotation] + _limits(limits)
    return words


def anchor(title: str) -> str:
    """Return the anchor of a section."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _several(words: str) -> str:
    return {"text": "texts", "whole number": "whole numbers", "number": "numbers"}.get(words, words)


def _limits(limits: Sequence[Any]) -> str:
    """Return the bounds of a number in words."""
    bounds = {type(limit): limit for limit in limits}
    ge, gt = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Gt)
    le, lt = bounds.get(annotated_types.Le), bounds.get(annotated_types.Lt)
    words = []
    if ge is not None and le is not None:
        return f", {_number(ge.ge)} to {_number(le.le)}"
    words += [f"at least {_number(ge.ge)}"] if ge is not None else []
    words += [f"above {_number(gt.gt)}"] if gt is not None else []
    words += [f"at most {_number(le.le)}"] if le is not None else []
    words += [f"below {_number(lt.lt)}"] if lt is not None else []
    return f", {' and '.join(words)}" if words else ""


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
