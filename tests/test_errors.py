"""Errors: every kind has an exit code, which the docs list."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import privet
from privet import InputError, PrivetError, errors
from privet.federation.monitoring.events import make_failure_event
from privet.runtime.run import DEALER_NAME

ROOT = Path(__file__).parent.parent


def kinds(below: type[PrivetError] = PrivetError) -> list[type[PrivetError]]:
    """Return every kind of error that this package defines."""
    direct = [kind for kind in below.__subclasses__() if kind.__module__ == errors.__name__]
    return direct + [found for child in direct for found in kinds(child)]


def all_kinds(below: type[PrivetError] = PrivetError) -> list[type[PrivetError]]:
    """Return every subclass of an error, including the private ones of modules."""
    found = [kind for child in below.__subclasses__() for kind in all_kinds(child)]
    return [below, *found]


def documented() -> dict[int, str]:
    """Return the table of exit codes in the documentation of the module."""
    assert errors.__doc__ is not None
    table = re.findall(r"^    (\d+) +(\S.*(?:\n {9}\S.*)?)$", errors.__doc__, re.MULTILINE)
    return {int(code): text for code, text in table}


def test_every_kind_has_a_separate_code() -> None:
    """A subclass shares the code of its parent only if it is a case of the same failure."""
    codes = [kind.exit_code for kind in kinds() if "exit_code" in vars(kind)]
    assert len(set(codes)) == len(codes)
    inherited = {kind for kind in kinds() if "exit_code" not in vars(kind)}
    cases = errors.PeerError, errors.UnavailableError
    assert all(issubclass(kind, cases) or kind is InputError for kind in inherited)


def test_documented_codes_match_the_classes() -> None:
    named = {
        code: getattr(errors, name.group(1))
        for code, text in documented().items()
        if (name := re.search(r"\((\w+Error)\)", text)) is not None
    }
    assert named == {kind.exit_code: kind for kind in kinds() if "exit_code" in vars(kind)}
    assert set(documented()) - set(named) == {0, PrivetError.exit_code, 2, 130}


def test_tutorial_lists_the_same_codes() -> None:
    text = " ".join((ROOT / "docs" / "tutorial.md").read_text().split())  # with any line breaks
    section = text[text.index("## When something is wrong") :]
    listed = re.search(r"exit code of its own \(.*?\):(.*?)\. `--log-format", section)
    assert listed is not None
    codes = [int(code) for code in re.findall(r"\b\d+\b", listed.group(1))]
    assert codes == sorted({kind.exit_code for kind in kinds()} - {PrivetError.exit_code})


def test_logs_name_only_documented_kinds() -> None:
    """Modules can distinguish more cases than a log shows."""
    for module in pkgutil.walk_packages(privet.__path__, "privet."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    tree = page[page.index("```text") :]
    named = set(re.findall(r"^[ │├└─]*(\w+Error)\b", tree, re.MULTILINE))
    assert named == {PrivetError.__name__, *(kind.__name__ for kind in kinds())}
    found = [kind for kind in all_kinds() if kind.__module__.startswith("privet.")]
    assert {kind.__new__(kind).kind for kind in found} == named
    private = [kind for kind in found if kind.__name__ not in named]
    assert private, "the rest checks nothing"
    for kind in private:
        fields = make_failure_event(kind("what is wrong")).fields
        assert fields["error"] in named
        assert fields["code"] == getattr(errors, fields["error"]).exit_code


def test_peer_and_step_of_an_error() -> None:
    named = errors.PeerLostError("bob", "has gone", "table/level")
    assert (str(named), named.peer, named.step) == ("bob: has gone", "bob", "table/level")
    unknown = errors.PeerLostError(None, "this channel is closed", "")
    assert (str(unknown), unknown.peer, unknown.step) == ("this channel is closed", None, None)
    assert errors.CorrelationError("was used before").peer == DEALER_NAME
    assert errors.DisagreementError("samples differ", "shop").peer == "shop"
    assert errors.DataError("the file is empty").peer is None


def test_the_first_step_is_kept() -> None:
    error = errors.ResultError("leaf values out of bounds")
    for step in ("", "table/leaves", "table"):
        error.set_step_if_unknown(step)
    assert error.step == "table/leaves"


def test_peer_and_step_survive_pickling() -> None:
    for error in (
        errors.PeerSilentError("bob", "nothing heard from it", "setup"),
        errors.DisagreementError("samples differ", "shop"),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (str(copy), copy.peer, copy.step) == (str(error), error.peer, error.step)
