"""Failures of a worker, as its coordinator raises them."""

from __future__ import annotations

import pytest

from privet import errors
from privet.data.sources.base import locate_errors
from privet.runtime.workers import CommandLoop, WorkerHandle
from privet.transport.memory import create_memory_channels


def raise_at_coordinator(error: BaseException) -> errors.PrivetError:
    """Return the error that a coordinator raises if its worker fails with `error`."""
    channels = create_memory_channels(["coordinator", "worker"])
    CommandLoop(channels["worker"], "coordinator").send_failure(error, "table/sums")
    with pytest.raises(errors.PrivetError) as caught:
        WorkerHandle(channels["coordinator"], "worker", 2).receive_response([])
    return caught.value


@pytest.mark.parametrize("kind", [errors.ParameterError, errors.DataError, errors.ModelError])
def test_local_errors_keep_their_kind(kind: type[errors.PrivetError]) -> None:
    error = raise_at_coordinator(kind("cannot be used"))
    assert type(error) is kind
    assert (str(error), error.step) == ("cannot be used (our worker for shard 3)", "table/sums")


def test_an_unreadable_table_is_a_data_error() -> None:
    """The worker is not lost: the user must fix the table."""
    with pytest.raises(errors.DataError) as caught, locate_errors("rows.parquet"):
        raise FileNotFoundError
    error = raise_at_coordinator(caught.value)
    assert type(error) is errors.DataError
    assert str(error) == "rows.parquet: No such file or directory (our worker for shard 3)"


def test_a_bug_is_reported_as_a_lost_worker() -> None:
    error = raise_at_coordinator(ZeroDivisionError("by 0"))
    assert isinstance(error, errors.PeerLostError)
    assert str(error) == "worker: ended by ZeroDivisionError: by 0"
