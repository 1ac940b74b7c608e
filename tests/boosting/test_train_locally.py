from __future__ import annotations

import numpy as np
import pytest

from privet import DataError, ParameterError, Params
from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_locally

PARAMS = Params(task="regression", tables=1, depth=1, buckets=4)
LABEL = np.arange(6.0)
BANK = bucket_columns("bank", ["a"], np.arange(6.0)[None], 4)


def test_unknown_protocol_is_rejected() -> None:
    with pytest.raises(ParameterError, match="protocol: 'magic' is not one of masked"):
        train_locally([BANK], LABEL, PARAMS, protocol="magic")


def test_different_sample_counts_are_rejected() -> None:
    shop = bucket_columns("shop", ["b"], np.arange(5.0)[None], 4)
    with pytest.raises(DataError, match="shop has 5 samples and the label has 6"):
        train_locally([BANK, shop], LABEL, PARAMS)


def test_different_bucket_counts_are_rejected() -> None:
    shop = bucket_columns("shop", ["b"], np.arange(6.0)[None], 8)
    with pytest.raises(ParameterError, match="buckets: 8 at shop, 4 agreed"):
        train_locally([BANK, shop], LABEL, PARAMS)


def test_parties_without_features_are_rejected() -> None:
    shop = bucket_columns("shop", [], np.empty((0, 6)), 4)
    with pytest.raises(DataError, match="no participant has a feature"):
        train_locally([shop], LABEL, PARAMS)


def test_constant_label_is_rejected() -> None:
    with pytest.raises(DataError, match="constant"):
        train_locally([BANK], np.ones(6), PARAMS)


def test_only_constant_columns() -> None:
    bank = bucket_columns("bank", ["a", "b"], np.ones((2, 6)), 4)
    model = train_locally([bank], LABEL, PARAMS)
    assert np.allclose(model.predict(np.ones((2, 3))), LABEL.mean())
