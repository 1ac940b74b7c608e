"""What several test modules need."""

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

# A busy machine must not fail a test, nor a rare example the build: at home they are random.
settings.register_profile("privet", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("privet")

_FILES = {"california": "california_housing.csv.gz", "credit": "credit_default.csv.gz"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes long, unless somebody asks for it."""
    if "PRIVET_SLOW" in os.environ:
        return
    left_out = pytest.mark.skip(reason="takes long: `make test-slow` runs it")
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(left_out)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Undo what a whole command, run in this process, does to signals as it ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], DataSet]:
    """Load a data set by name, or skip and say what is missing. Tests never download."""
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
    """Run a PostgreSQL server, or skip and say what is missing."""
    missing = postgres_server.missing()
    if missing is not None:
        pytest.skip(f"{missing}: queries are NOT tested")
    with postgres_server.running() as environment:
        yield environment


@pytest.fixture
def postgres(
    postgres_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Point libpq to a server, and return what runs statements there."""
    import adbc_driver_postgresql.dbapi as driver

    for name, value in postgres_environment.items():
        monkeypatch.setenv(name, value)

    def execute(*statements: str) -> None:
        with driver.connect("postgresql://", autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    return execute
