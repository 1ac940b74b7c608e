from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import date, datetime, timezone
from datetime import time as time_of_day
from pathlib import Path

import pyarrow as pa
import pytest
from tests.postgres_server import PASSWORD

from privet import DataError, ParameterError, UnavailableError
from privet.data.sources import postgres as postgres_module
from privet.data.sources.base import TableFormatOptions
from privet.data.sources.open import open_source
from privet.data.sources.postgres import PostgresQuery

Execute = Callable[..., None]


def read(sql: str, *columns: str, database: str = "postgresql://") -> pa.Table:
    source = open_source(PostgresQuery(sql=sql, database=database))
    return pa.Table.from_batches(source.iter_batches(columns or source.list_columns()))


TYPES = {
    "1::int2": (1, pa.int16()),
    "-2::int4": (-2, pa.int32()),
    "3::int8": (3, pa.int64()),
    "0.5::float4": (0.5, pa.float32()),
    "2.5::float8": (2.5, pa.float64()),
    "1234567890.125::numeric": (1234567890.125, pa.float64()),
    "12.50::numeric(8, 2)": (12.5, pa.float64()),
    "'Infinity'::numeric": (float("inf"), pa.float64()),
    "true": (True, pa.bool_()),
    "'ä'::text": ("ä", pa.string()),
    "'b'::varchar(3)": ("b", pa.string()),
    "'c'::char(3)": ("c  ", pa.string()),
    "'sad'::mood": ("sad", pa.string()),
    "7::grade": (7, pa.int32()),
    "date '2024-02-29'": (date(2024, 2, 29), pa.date32()),
    "timestamp '2024-02-29 12:00'": (datetime(2024, 2, 29, 12), pa.timestamp("us")),
    "time '12:00:01.5'": (time_of_day(12, 0, 1, 500_000), pa.time64("us")),
    "timestamptz '2024-02-29 12:00+02'": (
        datetime(2024, 2, 29, 10, tzinfo=timezone.utc),
        pa.timestamp("us", "UTC"),
    ),
    "'0123abcd-4567-89ab-cdef-0123456789ab'::uuid": (
        "0123abcd-4567-89ab-cdef-0123456789ab",
        pa.large_string(),
    ),
}


def test_types(postgres: Execute) -> None:
    postgres(
        "DROP TYPE IF EXISTS mood",
        "CREATE TYPE mood AS ENUM ('happy', 'sad')",
        "DROP DOMAIN IF EXISTS grade",
        "CREATE DOMAIN grade AS integer CHECK (value > 0)",
    )
    cells = ", ".join(f"{cell} AS c{i}" for i, cell in enumerate(TYPES))
    nulls = ", ".join(["NULL"] * len(TYPES))
    table = read(f"SELECT {cells} UNION ALL SELECT {nulls} -- with nulls")
    assert table.schema.types == [arrow_type for _, arrow_type in TYPES.values()]
    assert [column.to_pylist() for column in table.columns] == [
        [v, None] for v, _ in TYPES.values()
    ]


def test_numeric_that_is_not_a_number(postgres: Execute) -> None:
    (value,) = read("SELECT 'NaN'::numeric AS a")["a"].to_pylist()
    assert value != value  # noqa: PLR0124


@pytest.mark.parametrize(
    ("cell", "type_name"),
    [
        ("array[1, 2]", r"int4\[\]"),
        ("'{}'::json", "json"),
        ("'{}'::jsonb", "jsonb"),
        ("'12.50'::money", "money"),
        ("interval '1 day'", "interval"),
        ("'a'::bytea", "bytea"),
        ("inet '10.0.0.1'", "inet"),
        ("point(1, 2)", "point"),
    ],
)
def test_types_without_a_plain_type(postgres: Execute, cell: str, type_name: str) -> None:
    """Such a column is an error only if it is requested."""
    sql = f"SELECT {cell} AS odd, 5 AS a"
    assert read(sql, "a").to_pydict() == {"a": [5]}
    complaint = (
        rf"^PostgreSQL query: column 'odd' holds {type_name}: cast it in the query to a number"
    )
    with pytest.raises(DataError, match=complaint):
        open_source(PostgresQuery(sql=sql)).iter_batches(["odd"])


def test_columns_are_chosen(postgres: Execute) -> None:
    assert read("VALUES (1, 'a', true), (2, 'b', false);", "column3", "column1").to_pydict() == {
        "column3": [True, False],
        "column1": [1, 2],
    }


def test_listing_columns_does_not_run_the_query(postgres: Execute) -> None:
    source = open_source(
        PostgresQuery(sql="SELECT 1 / (x - 1) AS a FROM generate_series(1, 2) AS x")
    )
    assert source.list_columns() == ["a"]
    assert source.display_name == "PostgreSQL query"
    with pytest.raises(DataError, match=r"^PostgreSQL query: division by zero$"):
        list(source.iter_batches(["a"]))


def test_rows_stream(postgres: Execute) -> None:
    """The first rows arrive before the last exist; closing does not wait for these."""
    sql = """
        SELECT i, CASE WHEN i = 300 AND j = 10000 THEN pg_sleep(100)::text END AS last
        FROM generate_series(1, 300) AS i, generate_series(1, 10000) AS j
    """
    started = time.monotonic()
    batches = open_source(PostgresQuery(sql=sql)).iter_batches(["i", "last"])
    assert next(batches).num_rows < 3_000_000
    batches.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 50


def test_order_and_length(postgres: Execute) -> None:
    table = read("SELECT i FROM generate_series(1, 2000000) AS i ORDER BY -i")
    numbers = table["i"].to_numpy()
    assert len(numbers) == 2_000_000
    assert (numbers[:-1] - numbers[1:] == 1).all()


@pytest.mark.parametrize(
    "cell",
    ["'infinity'::date", "'-infinity'::date", "'infinity'::timestamp", "'-infinity'::timestamptz"],
)
def test_infinite_dates(postgres: Execute, cell: str) -> None:
    """The driver returns dates around the year -290000 for them."""
    sql = f"VALUES (NULL), (NULL), ({cell})"
    with pytest.raises(DataError, match=r"^PostgreSQL query: column 'column1', row 3 is infinite"):
        read(sql)
    assert read("SELECT date '4713-01-01 BC' AS a, date '5874897-12-31' AS b").num_rows == 1


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT a FROM nowhere", 'relation "nowhere" does not exist'),
        ("SELECT 1 AS a; SELECT 2 AS b", "cannot insert multiple commands into a prepared stat"),
        ("SELECT 1 AS a, 2 AS a", "the column 'a' is there twice, as number 1 and 2: keep one"),
        ("SELECT 1 AS a WHERE false", "the table has no rows"),
        ("SELECT", "the query returns no columns: write a SELECT"),
        ("DROP TABLE kept", "the query returns no columns: write a SELECT"),
        ("INSERT INTO kept VALUES (2) RETURNING a", "cannot execute INSERT in a read-only trans"),
        ("SELECT nextval('numbers') AS a", r"cannot execute nextval\(\) in a read-only transac"),
        ("SELECT $1::int AS a", r"there is no parameter \$1"),
    ],
)
def test_invalid_queries_are_rejected(postgres: Execute, sql: str, complaint: str) -> None:
    postgres(
        "CREATE TABLE IF NOT EXISTS kept (a integer)",
        "TRUNCATE kept",
        "INSERT INTO kept VALUES (1)",
        "CREATE SEQUENCE IF NOT EXISTS numbers",
    )
    with pytest.raises(DataError, match=f"^PostgreSQL query: {complaint}") as caught:
        read(sql)
    assert len(str(caught.value).splitlines()) == 1
    assert read("SELECT a FROM kept").to_pydict() == {"a": [1]}


def test_missing_table_permission(postgres: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres(
        "DROP TABLE IF EXISTS private",
        "DROP ROLE IF EXISTS visitor",
        f"CREATE ROLE visitor LOGIN PASSWORD '{PASSWORD}'",
        "CREATE TABLE private (a integer)",
    )
    monkeypatch.setenv("PGUSER", "visitor")
    with pytest.raises(DataError, match=r"^PostgreSQL query: permission denied for table private$"):
        read("SELECT * FROM private")


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("PGPASSWORD", "not-the-one", 'password authentication failed for user "owner"'),
        ("PGPASSWORD", "", "no password supplied"),
        ("PGHOST", "/nonexistent", "No such file or directory"),
        ("PGDATABASE", "nowhere", 'database "nowhere" does not exist'),
        ("PGSERVICE", "nobody", 'definition of service "nobody" not found'),
    ],
)
def test_no_connection(
    postgres: Execute, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(variable, value)
    expected = rf"^PostgreSQL query: no connection to the server: .*{complaint}.*; see PGHOST, PG"
    with pytest.raises(UnavailableError, match=expected) as caught:
        open_source(PostgresQuery(sql="SELECT 1 AS a"))
    assert caught.value.exit_code == 6
    assert len(str(caught.value).splitlines()) == 1
    assert PASSWORD not in str(caught.value)
    assert "not-the-one" not in str(caught.value)


def test_service_and_password_files(
    postgres: Execute,
    postgres_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """All connection settings of libpq work."""
    services, passwords = tmp_path / "services", tmp_path / "passwords"
    services.write_text(
        f"[ours]\nhost={postgres_environment['PGHOST']}\nuser=owner\ndbname=postgres\n"
    )
    passwords.write_text(f"*:*:*:owner:{PASSWORD}\n")
    passwords.chmod(0o600)
    for name in ("PGHOST", "PGUSER", "PGDATABASE", "PGPASSWORD"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    one = {"a": [1]}
    assert read("SELECT 1 AS a", database="ours").to_pydict() == one
    assert read("SELECT 1 AS a", database="postgresql:///?service=ours").to_pydict() == one
    monkeypatch.setenv("PGHOST", postgres_environment["PGHOST"])
    assert read("SELECT 1 AS a", database="postgres://owner@/postgres").to_pydict() == one


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_terminated_query(postgres: Execute, how: str) -> None:
    """Without the connection, the server is unavailable; otherwise, the query has failed."""
    sql = """
        SELECT i AS half_way
        FROM generate_series(1, 100000) AS i, generate_series(1, 100000) AS j
    """
    batches = open_source(PostgresQuery(sql=sql)).iter_batches(["half_way"])
    next(batches)
    postgres(
        f"SELECT {how}(pid) FROM pg_stat_activity "  # noqa: S608
        "WHERE query LIKE '%half_way%' AND pid <> pg_backend_pid()"
    )
    error, complaint = {
        "pg_terminate_backend": (UnavailableError, "the server is gone: .*; try again"),
        "pg_cancel_backend": (DataError, "canceling statement due to user request"),
    }[how]
    with pytest.raises(error, match=rf"^PostgreSQL query: {complaint}") as caught:
        for _ in batches:
            pass
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://me:hush@host/db",
        "postgres://me:hush@host/db",
        "postgresql://me:hu/sh@host/db",
        "postgresql://me:hu?sh@host/db",
        "postgresql://me:hu@sh@host/db",
        "postgresql://me@host/db?password=hush",
        "postgresql://me@host/db?pass%77ord=hush",
        "postgresql:///db?sslpassword=hush&user=me",
    ],
)
def test_passwords_in_addresses_are_rejected(database: str) -> None:
    with pytest.raises(ParameterError, match=r"^database: has a password in it; leave") as caught:
        PostgresQuery(sql="SELECT 1", database=database)
    assert "hu" not in str(caught.value)


@pytest.mark.parametrize("database", ["", "mysql://x", "host=x password=hush", "a b"])
def test_invalid_addresses_are_rejected(database: str) -> None:
    with pytest.raises(ParameterError, match=r"^database: is neither a service nor an") as caught:
        PostgresQuery(sql="SELECT 1", database=database)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "database", ["ours", "postgresql://", "postgresql://me@a:1,b:2/db?sslmode=verify-full"]
)
def test_addresses_without_passwords(database: str) -> None:
    assert PostgresQuery(sql="SELECT 1", database=database).database == database


def test_an_empty_query() -> None:
    with pytest.raises(ParameterError, match=r"^sql: the query is empty$"):
        PostgresQuery(sql=" \n")


def test_csv_options_are_rejected() -> None:
    with pytest.raises(ParameterError, match=r"^names: is for CSV files, and PostgreSQL query is"):
        open_source(PostgresQuery(sql="SELECT 1"), TableFormatOptions(names=["a"]))


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    complaint = r"^PostgreSQL query: needs a driver: pip install 'privet\[postgres\]', with Python"
    with pytest.raises(UnavailableError, match=complaint):
        open_source(PostgresQuery(sql="SELECT 1 AS a"))


def test_driver_without_column_types(postgres: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "_TYPE", b"absent")
    with pytest.raises(UnavailableError, match=r"^PostgreSQL query: needs a newer driver: pip"):
        open_source(PostgresQuery(sql="SELECT 1 AS a"))
