"""An estimator's hyper-parameters, as trainings take them."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from sklearn.utils import check_random_state

from privet.terms.params import Params, hyper_parameters


def params_of(estimator: Any, task: str, classes: int, patience: int | None = None) -> Params:
    """Return an estimator's hyper-parameters for a task; with that patience, if one is given."""
    values: dict[str, object] = {"task": task, "classes": classes}
    for name, field in hyper_parameters().items():
        # A grid search hands over numpy's numbers.
        value = getattr(estimator, name)
        if isinstance(value, np.generic):
            value = value.item()
        whole = int in (field.annotation, *get_args(field.annotation))
        if isinstance(value, int) and not isinstance(value, bool) and not whole:
            value = float(value)
        values[name] = value
    seed = seed_of(estimator.random_state)
    if seed is not None:
        values["seed"] = seed
    if patience is not None:
        values["patience"] = patience
    return Params.parse(values)


def seed_of(random_state: Any) -> int | None:
    """Return the seed that `random_state` stands for; None where none is given."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))
