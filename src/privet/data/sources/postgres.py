"""Queries to PostgreSQL, whose rows stream from the server.

libpq takes the connection from the environment (PGHOST, PGUSER, PGPASSFILE, ...), from a service in
its service file, or from an address without a password. The query runs unchanged, once for each
reading, in a read-only transaction. It is not wrapped in another query that selects and casts
columns, because its rows could lose their order.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from privet.data.sources.base import TableSource
from privet.errors import DataError, PrivetError, UnavailableError
from privet.schema import Config

QUERY_DISPLAY_NAME = "PostgreSQL query"
"""The name of a query in messages; the query itself can contain secrets."""

_TYPE = b"POSTGRESQL:type"
_TYPE_OVERRIDES: Mapping[str, pa.DataType] = {"numeric": pa.float64(), "uuid": pa.large_string()}
# Money is a number of cents, or of another unit that depends on the locale of the server.
_UNSUPPORTED_TYPES = ("json", "jsonb", "money")
_EARLIEST = -2_440_588  # days before 1970: 4713 BC, as early as a date of PostgreSQL can be
_DAY = 86_400_000_000

_DRIVER_PREFIX_PATTERN = re.compile(
    r"^([A-Z_]+: )?(\[libpq\] )?(Failed to connect: |Execution error \[\w+\]: )?(ERROR: +)?"
)


class PostgresQuery(Config):
    """What to ask which database."""

    sql: str
    """One SELECT, or anything else that returns rows and changes nothing."""
    database: str = "postgresql://"
    """A service of libpq's service file, or an address; all that it leaves open, and always the
    password, comes from the environment."""

    @field_validator("sql")
    @classmethod
    def _check_not_empty(cls, sql: str) -> str:
        if not sql.strip():
            raise ValueError("the query is empty")
        return sql

    @field_validator("database")
    @classmethod
    def _check_no_secrets(cls, database: str) -> str:
        if re.fullmatch(r"[\w.-]+", database):
            return database
        if not re.match("postgres(ql)?://", database):
            raise ValueError(
                "is neither a service nor an address: give a name of libpq's service file, or "
                "postgresql://..."
            )
        # A password with an unescaped "@" or "?" is not where a parser expects it.
        user = database.partition("://")[2].rpartition("@")[0]
        parameters = dict(parse_qsl(database.partition("?")[2], keep_blank_values=True))
        if ":" in user or parameters.keys() & {"password", "sslpassword"}:
            raise ValueError(
                "has a password in it; leave it out, and give it by PGPASSFILE, PGPASSWORD or the "
                "service file"
            )
        return database

    def get_connection_uri(self) -> str:
        """Return the connection URI for libpq, which reads the rest from the environment."""
        if "://" in self.database:
            return self.database
        return f"postgresql:///?service={self.database}"


class PostgresSource(TableSource):
    """The rows that a query returns."""

    def __init__(self, query: PostgresQuery) -> None:
        self._query = query
        with self._open_cursor() as cursor:
            schema = cursor.adbc_execute_schema(self._clean_sql())
        if not schema.names:
            raise DataError("the query returns no columns: write a SELECT")
        if any(_TYPE not in (field.metadata or {}) for field in schema):
            raise UnavailableError(_format_install_advice("a newer driver"))
        super().__init__(QUERY_DISPLAY_NAME, schema)

    def get_plain_type(self, name: str) -> pa.DataType:
        """Return the plain type of a column; raise DataError if the query must cast it."""
        field = self.schema.field(name)
        type_name = field.metadata[_TYPE].decode()
        if type_name in _TYPE_OVERRIDES:
            return _TYPE_OVERRIDES[type_name]
        with contextlib.suppress(DataError):
            if type_name not in _UNSUPPORTED_TYPES:
                return super().get_plain_type(name)
        shown = f"{type_name[1:]}[]" if type_name.startswith("_") else type_name
        raise DataError(
            f"column {name!r} holds {shown}: cast it in the query to a number, text, a date or a "
            "timestamp, or leave it out"
        )

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Run the query, and read these columns."""
        rows = 0
        with self._open_cursor() as cursor:
            cursor.execute(self._clean_sql())
            for batch in cursor.fetch_record_batch():
                chosen = batch.select(columns)
                for name, column in zip(columns, chosen.columns, strict=True):
                    _check_finite_dates(name, column, rows)
                yield chosen
                rows += batch.num_rows

    def _clean_sql(self) -> str:
        # The driver adds parentheses; a comment at the end would hide the closing one.
        return self._query.sql.strip().removesuffix(";") + "\n"

    @contextlib.contextmanager
    def _open_cursor(self) -> Iterator[Any]:
        driver = _import_driver()
        try:
            connection = driver.connect(self._query.get_connection_uri())
        except driver.Error as error:
            raise UnavailableError(
                f"{QUERY_DISPLAY_NAME}: no connection to the server: "
                f"{_format_server_message(error)}; see PGHOST, PGPORT, "
                "PGUSER, PGDATABASE and PGPASSFILE, or the service file"
            ) from None
        with contextlib.closing(connection):
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION READ ONLY")
                    yield cursor
            except (driver.Error, pa.ArrowException, OSError) as error:
                raise _explain(error, connection, driver) from None


def _import_driver() -> Any:
    try:
        import adbc_driver_postgresql.dbapi as driver
    except ImportError:
        raise UnavailableError(_format_install_advice("a driver")) from None
    return driver


def _format_install_advice(package: str) -> str:
    return (
        f"{QUERY_DISPLAY_NAME}: needs {package}: pip install 'privet[postgres]', with Python 3.11 "
        "or later"
    )


def _explain(error: Exception, connection: Any, driver: Any) -> PrivetError:
    """Distinguish an error in the query from a lost connection to the server."""
    try:
        connection.rollback()
    except driver.Error:
        return UnavailableError(
            f"{QUERY_DISPLAY_NAME}: the server is gone: {_format_server_message(error)}; try again"
        )
    return DataError(_format_server_message(error))


def _format_server_message(error: Exception) -> str:
    """Return the server's message in one line, without the query and the driver's prefix."""
    details = dict(getattr(error, "details", None) or ())
    message = details.get(b"PG_DIAG_MESSAGE_PRIMARY", b"").decode(errors="replace")
    return " ".join((message or _DRIVER_PREFIX_PATTERN.sub("", str(error))).split())


def _check_finite_dates(name: str, column: pa.Array, rows_before: int) -> None:
    """Reject early dates: infinite and late dates become early ones by overflow in the driver."""
    if pa.types.is_date32(column.type):
        numbers, earliest = column.view(pa.int32()), _EARLIEST
    elif pa.types.is_timestamp(column.type):
        numbers, earliest = column.view(pa.int64()), _EARLIEST * _DAY
    else:
        return
    early = pc.indices_nonzero(pc.less(numbers, earliest))
    if len(early):
        raise DataError(
            f"column {name!r}, row {rows_before + early[0].as_py() + 1} is infinite, or after the "
            "year 294246: select another date, or null where it is missing"
        )
