"""What goes wrong at a worker, as its head has it."""

from __future__ import annotations

import pytest

from privet import errors
from privet.data.sources.base import locate_errors
from privet.runtime.workers import CommandLoop, WorkerHandle
from privet.transport.memory import create_memory_channels


def told(error: BaseException) -> errors.PrivetError:
    """Return what a head raises when its worker has failed so."""
    link = create_memory_channels(["head", "worker"])
    CommandLoop(link["worker"], "head").send_failure(error, "table/sums")
    with pytest.raises(errors.PrivetError) as caught:
        WorkerHandle(link["head"], "worker", 2).receive_response([])
    return caught.value


@pytest.mark.parametrize("kind", [errors.ParameterError, errors.DataError, errors.ModelError])
def test_it_is_of_the_same_kind(kind: type[errors.PrivetError]) -> None:
    error = told(kind("cannot be used"))
    assert type(error) is kind
    assert (str(error), error.step) == ("cannot be used (our worker for shard 3)", "table/sums")


def test_a_table_that_cannot_be_read() -> None:
    """It is no lost worker: the user is to see to the table."""
    with pytest.raises(errors.DataError) as caught, locate_errors("rows.parquet"):
        raise FileNotFoundError
    error = told(caught.value)
    assert type(error) is errors.DataError
    assert str(error) == "rows.parquet: No such file or directory (our worker for shard 3)"


def test_a_bug_is_a_lost_worker() -> None:
    error = told(ZeroDivisionError("by 0"))
    assert isinstance(error, errors.PeerLostError)
    assert str(error) == "worker: ended by ZeroDivisionError: by 0"
