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

_KINDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
}


Titles = Mapping[type[BaseModel], str]
"""What the section on a model is called; or a link, where it is on another page."""


def section(model: type[BaseModel], titles: Titles, skip: Sequence[str] = ()) -> Iterator[str]:
    """Yield a section on a model: what it is, and its keys as a table."""
    yield f"## {titles[model]}\n"
    for paragraph in (inspect.getdoc(model) or "").split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    yield from keys(model, titles, skip)


def keys(model: type[BaseModel], titles: Titles, skip: Sequence[str] = ()) -> Iterator[str]:
    """Yield the keys of a model as a table. What is not explained in the code is an error."""
    said = meanings(model)
    rows = []
    own = [name for name in model.__annotations__ if name in model.model_fields]
    for name in dict.fromkeys([*own, *model.model_fields]):
        field = model.model_fields[name]
        if name in skip:
            continue
        if not said[name]:
            raise LookupError(f"{model.__name__}.{name} has no docstring: say what it is")
        rows.append([f"`{name}`", kind(field, titles), default(field), said[name]])
    head = ["key", "is", "by default", "means"]
    if not issubclass(model, Config):  # all of a report is there
        for row in (head, *rows):
            del row[2]
    yield from table(head, rows)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what is said of each field: its description, then its docstring."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _docstrings(base)
    for name, field in model.model_fields.items():
        words = " ".join(filter(None, (field.description, found.get(name))))
        found[name] = words
    return found


def _docstrings(model: type) -> dict[str, str]:
    """Return the docstrings of a class's own fields, which Python itself does not keep."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, words in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            found[field.target.id] = " ".join(str(words.value.value).split())
    return found


def default(field: FieldInfo) -> str:
    """Say what a key is that is left out."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{toml(value)}`"


def toml(value: object) -> str:
    """Return a value as a file has it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return f"{value:_}" if isinstance(value, int) and abs(value) > 9999 else str(value)


def kind(field: FieldInfo, titles: Titles) -> str:
    """Say what a value may be, its limits included."""
    return _kind(field.annotation, titles, field.metadata)


def _kind(annotation: Any, titles: Titles, limits: Sequence[Any] = ()) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inside = [m for each in inner[1:] for m in getattr(each, "metadata", [each])]
        words = _kind(inner[0], titles, inside)
    elif origin in (Union, types.UnionType):
        parts = [_kind(each, titles, limits) for each in inner if each is not type(None)]
        words = ", or ".join(dict.fromkeys(parts))
    elif origin is Literal:
        words = " or ".join(f"`{toml(value)}`" for value in inner)
    elif origin is list:
        words = f"list of {_several(_kind(inner[0], titles))}"
    elif origin is tuple:
        words = " and ".join(_kind(each, titles) for each in inner if each is not ...)
    elif origin in (dict, Mapping):
        words = f"{_several(_kind(inner[1], titles))} by name"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        title = titles[annotation]
        words = title if title.endswith(")") else f"[{title}](#{anchor(title)})"
    else:
        words = _KINDS[annotation] + _limits(limits)
    return words


def anchor(title: str) -> str:
    """Return how a section is linked to."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _several(words: str) -> str:
    return {"text": "texts", "whole number": "whole numbers", "number": "numbers"}.get(words, words)


def _limits(limits: Sequence[Any]) -> str:
    """Say between what bounds a number must be, or how long a list."""
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
