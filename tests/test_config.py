from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from privet import ParameterError, Params


def test_number_of_reported_errors_is_limited() -> None:
    with pytest.raises(ParameterError, match=r"x4: is not known; and 95 more$"):
        Params.parse({"task": "regression"} | {f"x{i}": 0 for i in range(100)})


def test_invalid_keyword_argument_is_a_parameter_error() -> None:
    with pytest.raises(ParameterError, match="tables"):
        Params(task="regression", tables=0)


def test_values_are_frozen() -> None:
    params = Params(task="regression")
    with pytest.raises(ValidationError, match="frozen"):
        params.tables = 3


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("tables", 0, "greater than or equal to 1, got 0"),
        ("depth", 0, "greater than or equal to 1"),
        ("depth", 11, "less than or equal to 10, got 11"),
        ("buckets", 1, "greater than or equal to 2, got 1"),
        ("buckets", 257, "less than or equal to 256"),
        ("l2", 0.0, "greater than 0"),
        ("l2", math.inf, "finite"),
        ("learning_rate", 0.0, "greater than or equal to 0.000000001"),
        ("learning_rate", 1.5, "less than or equal to 1"),
        ("learning_rate", math.nan, "finite"),
        ("base_score", math.nan, "finite"),
        ("task", "ranking", "'ranking' is none of regression, classification"),
        ("tables", "10", "valid integer, got '10'"),
        ("tables", True, "valid integer, got True"),
        ("trees", 3, "is not known"),
    ],
)
def test_a_bad_value_is_named(key: str, value: object, complaint: str) -> None:
    with pytest.raises(ParameterError, match=rf"^{key}: .*{complaint}"):
        Params.parse({"task": "regression", key: value})


def test_every_bad_key_is_named_at_once() -> None:
    with pytest.raises(ParameterError, match=r"task: is required; depth: .*got 99") as caught:
        Params.parse({"depth": 99})
    assert isinstance(caught.value, ValueError)


def test_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ParameterError) as caught:
        Params.parse({"task": "x" * 1000})
    assert len(str(caught.value)) < 200
