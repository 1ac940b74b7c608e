"""Fixtures and settings for several test modules."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from privet import DataSet, load_dataset
from tests import postgres_server

pytest.register_assert_rewrite("tests.runtime.harness")

# A busy machine must not fail a test, nor a rare example CI; elsewhere, examples are random.
settings.register_profile("privet", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("privet")

_FILES = {"california": "california_housing.csv.gz", "credit": "credit_default.csv.gz"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip slow tests unless PRIVET_SLOW is set."""
    if "PRIVET_SLOW" in os.environ:
        return
    skip_slow = pytest.mark.skip(reason="takes long: `make test-slow` runs it")
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(skip_slow)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Restore the signal handlers that a command run in this process changes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], DataSet]:
    """Load a data set by name, or skip and name the missing file. Tests never download."""
    loaded: dict[str, DataSet] = {}

    def load(name: str) -> DataSet:
        if name in _FILES:
            path = Path(os.environ.get("PRIVET_DATA", "")) / _FILES[name]
            if not path.is_file():
                pytest.skip(f"{_FILES[name]} is not in PRIVET_DATA: {name} is NOT tested")
        if name not in loaded:
            loaded[name] = load_dataset(name)
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def postgres_environment() -> Iterator[dict[str, str]]:
    """Run a PostgreSQL server, or skip and name the missing requirement."""
    missing = postgres_server.missing()
    if missing is not None:
        pytest.skip(f"{missing}: queries are NOT tested")
    with postgres_server.running() as environment:
        yield environment


@pytest.fixture
def postgres(
    postgres_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Connect libpq to the server, and return a function that runs statements there."""
    import adbc_driver_postgresql.dbapi as driver

    for name, value in postgres_environment.items():
        monkeypatch.setenv(name, value)

    def execute(*statements: str) -> None:
        with driver.connect("postgresql://", autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    return execute
