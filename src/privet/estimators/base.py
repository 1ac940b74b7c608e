"""The base class of both estimators: parameters, fitted attributes and parties.

What a kind of label needs beside that stands in the module of its estimator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.explanation import explain_scores
from privet.boosting.model import Model
from privet.boosting.preparation import check_constrained_columns
from privet.boosting.reference import compute_level_gains
from privet.data.partition import DEFAULT_N_PARTIES
from privet.errors import DataError, ParameterError
from privet.estimators import fitting
from privet.estimators.fitting import fit_parties
from privet.estimators.inputs import (
    VALIDATION_OPTIONS,
    check_eval_set,
    concatenate_tables,
    encode_columns,
    fit_array_encoders,
    is_table_list,
    order_fit_rows,
    parse_monotone_constraints,
    resolve_partition,
    to_numeric,
    to_numeric_tables,
)
from privet.spec.column_types import ColumnSchema
from privet.spec.params import (
    DEFAULT_PROTOCOL,
    Params,
    list_hyper_parameters,
    with_hyper_parameters,
)
from privet.spec.plan import CutDisclosure
from privet.spec.sampling import check_weights, find_best_table_count, normalise_weights


def make_params(estimator: Any, task: str, classes: int, patience: int | None = None) -> Params:
    """Return an estimator's hyper-parameters for a task; with that patience, if one is given."""
    values: dict[str, object] = {"task": task, "classes": classes}
    for name, field in list_hyper_parameters().items():
        # A grid search hands over numpy's numbers.
        value = getattr(estimator, name)
        if isinstance(value, np.generic):
            value = value.item()
        whole = int in (field.annotation, *get_args(field.annotation))
        if isinstance(value, int) and not isinstance(value, bool) and not whole:
            value = float(value)
        values[name] = value
    seed = draw_seed(estimator.random_state)
    if seed is not None:
        values["seed"] = seed
    if patience is not None:
        values["patience"] = patience
    return Params.parse(values)


def draw_seed(random_state: Any) -> int | None:
    """Return the seed that `random_state` stands for; None where none is given."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))


def apply_sample_weights(
    X: FloatArray, label: FloatArray, weight: FloatArray, params: Params
) -> tuple[FloatArray, FloatArray, FloatArray, Params]:
    """Return what trains as if every sample were there as often as its weight says.

    Trainings take weights in means; what is added to sums of them is, too. Samples without a
    weight are left out: they would have a say in the buckets.
    """
    check_weights(weight)
    there = weight > 0
    mean = float(np.mean(weight[there]))
    compared = ("l2", "min_child_weight", "min_gain")
    relative = params.model_copy(update={name: getattr(params, name) / mean for name in compared})
    return X[there], label[there], weight[there], relative


class FederatedEstimator(BaseEstimator):
    """What the classifier and the regressor share: parameters, attributes, and parties.

    Parameters
    ----------
    protocol : str
        How the parties compute. `"masked"`: on secret shares, as threads of this process.
        `"paper"`: the same by the paper's protocol, much slower. `"plain"`: in the clear, the
        reference for both. The parts of the model that the parties end with are joined, so that
        `predict` is in the clear.
    partition : int, sequence or mapping
        Which columns of a single table belong to which party. A number: that many parties, evenly.
        A sequence of sequences, or a mapping from party names to sequences: the columns of each
        party, by position or name. The last party holds the label. Not used when `fit` is given
        one table per party.
    cuts : str, optional
        What the parties tell each other of how many cuts each column has: `"exact"`, `"rounded"`
        (up to 1, 3, 7, 15, ...) or `"hidden"`. By default, `"rounded"`; with `"paper"`, `"hidden"`.
    dealers : int
        Who deals what masks are made of: 1, or 3, of whom none knows a mask. `"paper"` takes 1.
    monotone_constraints : mapping or sequence, optional
        Columns as which grow scores never fall (1) or never rise (-1), by name or position; or 1,
        -1 or 0 for every column. A missing value is smaller than all others.
    verbose : bool
        Whether to show how far a training is, on stderr.
    random_state : int, RandomState or None
        What rows and columns are drawn by where some are left out: the hyper-parameter `seed`.
    importance_type : str
        Whether `feature_importances_` are shares of all tests (`"split"`) or of what they `"gain"`.
    warm_start : bool
        Whether a second `fit` of the same rows, with more `tables`, goes on from the model that is
        there. Nothing else may change. Not with validation rows or early stopping.
    **params
        The hyper-parameters, by name, as in `privet.Params`.

    Attributes
    ----------
    model_ : Model
    report_ : FitReport
        What the training took and, by a secure protocol, what it revealed; a page in a notebook.
    encoders_ : tuple of Encoder
        What was learned of every column: ranks of categories.
    partition_ : dict
        The columns of each party, by position.
    evals_result_ : dict
        `{"validation": {"loss": [...]}}`: the mean loss on rows that are watched (`eval_set`, or
        the share `validation`) after each table that was trained. Empty, if there are none.
    best_iteration_ : int or None
        The table, from 0, after which it was smallest.
    feature_importances_ : array
        The share of all tests, or of all gains, that each column has.
    n_features_in_ : int
    feature_names_in_ : array, where the columns have names

    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]

    @with_hyper_parameters()
    def __init__(
        self,
        *,
        protocol: str = DEFAULT_PROTOCOL,
        partition: int | Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] = DEFAULT_N_PARTIES,
        cuts: CutDisclosure | None = None,
        dealers: int = 1,
        monotone_constraints: Mapping[Any, int] | Sequence[int] | None = None,
        verbose: bool = False,
        random_state: Any = None,
        importance_type: str = "split",
        warm_start: bool = False,
        **params: Any,
    ) -> None:
        self.protocol = protocol
        self.partition = partition
        self.cuts = cuts
        self.dealers = dealers
        self.monotone_constraints = monotone_constraints
        self.verbose = verbose
        self.random_state = random_state
        self.importance_type = importance_type
        self.warm_start = warm_start
        for name, field in list_hyper_parameters().items():
            setattr(self, name, params.pop(name, field.default))
        if params:
            raise TypeError(f"{type(self).__name__} has no parameter {next(iter(params))!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def feature_importances_(self) -> FloatArray:
        """The share of all tests or gains that each column has, in the order of the columns."""
        check_is_fitted(self)
        result = np.empty(self.n_features_in_)
        gains = self._gains if self.importance_type == "gain" else None
        result[self._order] = self.model_.compute_importances(gains)
        return result

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        """The position of every feature of the model among the columns given to `fit`."""
        return np.concatenate([np.asarray(p, dtype=np.intp) for p in self.partition_.values()])

    @fitting.restore_on_failure
    def _fit(
        self,
        X: Any,
        label: FloatArray,
        task: str,
        class_names: tuple[str, ...] = (),
        weight: FloatArray | None = None,
        validation: tuple[Any, FloatArray] | None = None,
        early_stopping_rounds: int | None = None,
    ) -> None:
        params = make_params(self, task, max(2, len(class_names)), early_stopping_rounds)
        if self.warm_start:
            fitting.check_no_validation(params, has_eval_set=validation is not None)
        asked = params
        if self.importance_type not in ("split", "gain"):
            raise ParameterError(f"importance_type: {self.importance_type!r} is not split or gain")
        X, contents = self._to_numeric(X)
        X, self.partition_ = self._join(X)
        check_consistent_length(X, label, weight)
        if weight is not None:
            X, label, weight, params = apply_sample_weights(X, label, weight, params)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
        order, n_validation = order_fit_rows(len(X), params, has_eval_set=validation is not None)
        X, label = X[order], label[order]
        trained = slice(len(X) - n_validation)
        weight = None if weight is None else weight[order][trained]
        self.encoders_ = fit_array_encoders(names, contents, X[trained], params.buckets)
        X = encode_columns(self.encoders_, contents, X)
        if validation is not None:
            rows, same = self._to_numeric(validation[0])
            rows = encode_columns(self.encoders_, same, self._validate_predict_input(rows))
            check_eval_set(rows, validation[1])
            X, label = np.concatenate([X, rows]), np.concatenate([label, validation[1]])
            n_validation = len(rows)
        parties = [
            bucket_columns(
                party,
                [names[i] for i in part],
                np.ascontiguousarray(X[:, part].T),
                params.buckets,
                n_validation,
            )
            for party, part in self.partition_.items()
        ]
        constraints = parse_monotone_constraints(self.monotone_constraints, names)
        check_constrained_columns(self.encoders_, [names[i] for i in np.flatnonzero(constraints)])
        given = fitting.make_fit_inputs(
            parties,
            label,
            weight,
            asked,
            protocol=self.protocol,
            cuts=self.cuts,
            partition=self.partition_,
            monotone_constraints=constraints,
            validation_rows=n_validation,
            labels=class_names,
        )
        before = fitting.find_previous_fit(self, given) if self.warm_start else None
        if before is not None and before.inputs.tables == params.tables:
            return
        found, states, report = fit_parties(
            parties,
            label,
            params,
            self.protocol,
            self.cuts,
            weight,
            n_validation,
            [constraints[i] for i in self._order],
            before,
            n_dealers=self.dealers,
            verbose=bool(self.verbose),
        )
        fitting.store_fit_state(self, fitting.FitState(given, found.model, states, report.losses))
        model = found.model
        if contents:
            own = tuple(self.encoders_[i] for i in self._order)
            model = replace(model, encoders=own)
        self.model_: Model = replace(model, classes=class_names)
        self.report_ = report.model_copy(update={"model": self.model_})
        self.evals_result_ = {"validation": {"loss": list(found.losses)}} if n_validation else {}
        self.best_iteration_ = find_best_table_count(found.losses) - 1 if n_validation else None
        trained = slice(len(X) - n_validation)
        columns = np.ascontiguousarray(X[trained, self._order].T)
        relative = None if weight is None else normalise_weights(weight)
        self._gains = compute_level_gains(self.model_, columns, label[trained], params, relative)

    def explain(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return what columns add to scores, (rows, columns, K), and what they add it to: (K,)."""
        found = explain_scores(self.model_, self._make_features(X))
        return found.contributions.T[:, np.argsort(self._order)], found.base

    def _make_features(self, X: Any) -> FloatArray:
        """Return the features of new rows as the model takes them: (n_features, n_samples)."""
        check_is_fitted(self)
        X, contents = self._to_numeric(X)
        X = encode_columns(self.encoders_, contents, self._validate_predict_input(X))
        return np.ascontiguousarray(X[:, self._order].T)

    def _predict(self, X: Any) -> FloatArray:
        columns = self._make_features(X)
        return self.model_.predict(columns)

    def _staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """Yield what is predicted after the first table, after the second, and so on."""
        for scores in self.model_.staged_scores(self._make_features(X)):
            yield self.model_.objective.predict_from_scores(scores)

    @staticmethod
    def _to_numeric(X: Any) -> tuple[Any, dict[int, ColumnSchema]]:
        """Return one table or one per party with numbers alone, and what other columns meant."""
        return to_numeric_tables(X) if is_table_list(X) else to_numeric(X)

    def _join(self, X: Any) -> tuple[FloatArray, dict[str, list[int]]]:
        """Check what was given to `fit`; return all columns side by side, and whose they are."""
        if not is_table_list(X):
            joined: FloatArray = validate_data(self, X, ensure_min_samples=2, **VALIDATION_OPTIONS)
            names = getattr(self, "feature_names_in_", ())
            return joined, resolve_partition(self.partition, names, joined.shape[1])
        if len(X) < 2:
            raise DataError("a federation has at least 2 parties; give one table for each")
        joined, names = concatenate_tables(X)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = joined.shape[1]
        ends = np.cumsum([np.shape(table)[1] for table in X]).tolist()
        parts = zip([0, *ends], ends, strict=False)
        return joined, {f"party{i}": list(range(*part)) for i, part in enumerate(parts, start=1)}

    def _validate_predict_input(self, X: Any) -> FloatArray:
        """Check what was given to `predict` against what was given to `fit`."""
        if not is_table_list(X):
            joined: FloatArray = validate_data(self, X, reset=False, **VALIDATION_OPTIONS)
            return joined
        widths = [np.shape(table)[1] for table in X]
        expected = [len(part) for part in self.partition_.values()]
        if widths != expected:
            raise DataError(f"the parties' tables have {widths} columns, at fit {expected}")
        joined, names = concatenate_tables(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != list(known):
            raise DataError(
                "the columns' names differ from those at fit: "
                + ", ".join(f"{a!r} for {b!r}" for a, b in zip(names, known, strict=True) if a != b)
            )
        return joined
