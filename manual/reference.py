"""The pages of the reference, each generated from the code that it documents."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from manual import commands, http, python_names
from manual.fields import Titles, render_section
from manual.markdown import table, wrapped
from privet import errors
from privet.config import job, party
from privet.config.job import IdSettings, Job
from privet.config.members import DealerEntry, MemberEntry, PartyEntry
from privet.config.party import ClusterConfig, EndpointConfig, LocalDealerConfig, PartyConfig
from privet.config.table import TableSpec
from privet.experiments import comparison, report
from privet.experiments.comparison import Comparison
from privet.experiments.report import Report
from privet.federation.monitoring import report as party_report
from privet.federation.monitoring.report import PartyReport
from privet.spec.params import Params

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_NOTE = "<!-- Written from the code by `python -m manual`. Change the code, not this page. -->\n"


def render_pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    return {name: wrapped([_NOTE, *map(_linked, lines())]) for name, lines in _PAGES.items()}


def _linked(line: str) -> str:
    """Turn names of documents into links."""
    line = re.sub(r"\bdocs/(decisions/(\d{4})-[\w-]+\.md)", r"[decision \2](../\1)", line)
    return line.replace("(SECURITY.md)", "([SECURITY.md](../../SECURITY.md))")


def _job() -> Iterator[str]:
    yield "# job.toml\n"
    yield from _documented(job)
    yield "Keys that stand by themselves come first; then the tables, `[params]` and so on.\n"
    titles: Titles = {
        Job: "The job",
        Params: "`[params]`",
        IdSettings: "`[ids]`",
        MemberEntry: "`[dealer]`",
        DealerEntry: "`[[dealers]]`",
        PartyEntry: "`[[participants]]`",
    }
    yield from render_section(Job, titles)
    yield from render_section(Params, titles, skip=("task", "classes"))
    for model in (IdSettings, MemberEntry, DealerEntry, PartyEntry):
        yield from render_section(model, titles)


def _party() -> Iterator[str]:
    yield "# party.toml\n"
    yield from _documented(party)
    titles: Titles = {
        PartyConfig: "The participant",
        TableSpec: "`[data]`",
        EndpointConfig: "`[endpoint]`",
        ClusterConfig: "`[cluster]`",
        LocalDealerConfig: "`[dealer]`",
    }
    for model in titles:
        yield from render_section(model, titles)
    yield "What tables may be, with examples: [tables](../tables.md).\n"


def _reports() -> Iterator[str]:
    yield "# Reports\n"
    yield (
        "JSON objects, written by `--report FILE`. Keys may be added in later versions; none is "
        "renamed.\n"
    )
    for title, model in (
        ("A participant's: `privet train` and `privet predict`", PartyReport),
        ("An experiment's: `privet simulate`", Report),
        ("A comparison's: `privet simulate --compare`", Comparison),
    ):
        inner = _inside(model)
        titles = {model: title, **{each: each.__name__ for each in inner}}
        titles[Params] = "[`[params]`](job.md#params)"
        yield from render_section(model, titles)
        if model is not PartyReport:
            inner = [each for each in inner if each.__module__ != party_report.__name__]
        for each in inner:
            if each is not Params:
                yield from render_section(each, titles)


def _inside(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that the fields of a model use, also indirectly, in code order."""
    candidates = [
        value
        for module in (party_report, report, comparison)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, BaseModel) and value is not model
    ]
    used: list[type[BaseModel]] = []
    queue: list[type[BaseModel]] = [model]
    while queue:
        text = " ".join(str(field.annotation) for field in queue.pop().model_fields.values())
        new = [m for m in candidates if f"{m.__module__}.{m.__name__}" in text and m not in used]
        used += new
        queue += new
    return used


def _exit_codes() -> Iterator[str]:
    yield "# Exit codes\n"
    yield (
        "What a process of the command line returns. Its last line on stderr says why; with "
        "`--log-format json` that is an object with the fields `event` (`done`, `error` or "
        "`interrupted`), `code`, `error` (its kind in the tree below; of a bug of ours, that of "
        "Python), `peer` (whom it blames) and `step` (where in the protocol it happened); the last "
        "two are null where they are not known.\n"
    )
    error_types = [value for value in vars(errors).values() if inspect.isclass(value)]
    with_exit_code = [
        error_type
        for error_type in error_types
        if "exit_code" in vars(error_type) and error_type.exit_code > 1
    ]
    rows = [
        ("0", "", "Done."),
        ("1", "", "A bug of ours: please report it."),
        ("2", "", "The command line could not be understood."),
        *(
            (str(error_type.exit_code), f"`{error_type.__name__}`", _first_words(error_type))
            for error_type in with_exit_code
        ),
        (str(errors.EXIT_CODE_INTERRUPTED), "", "Interrupted, by Ctrl-C or SIGTERM."),
    ]
    yield from table(("code", "kind", "what it means"), sorted(rows, key=lambda row: int(row[0])))
    yield "In Python all of them are a `PrivetError`:\n"
    tree = (inspect.getdoc(errors) or "").split("\n\n")[1]
    yield f"```text\n{textwrap.dedent(tree)}\n```"


def _first_words(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _documented(module: ModuleType) -> Iterator[str]:
    """Yield the docstring of a module, with its indented examples as TOML blocks."""
    text = inspect.getdoc(module) or ""
    for part in re.split(r"((?:^    .*\n(?:\n+(?=    ))?)+)", text + "\n", flags=re.MULTILINE):
        if part.startswith("    "):
            yield "```toml\n" + textwrap.dedent(part).rstrip() + "\n```"
        else:
            yield "\n" * part.startswith("\n") + part.strip("\n") + "\n"


_PAGES = {
    "job.md": _job,
    "party.md": _party,
    "commands.md": commands.page,
    "exit-codes.md": _exit_codes,
    "reports.md": _reports,
    "http.md": http.page,
    "python.md": python_names.page,
}
