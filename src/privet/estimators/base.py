"""The base class of both estimators: parameters, fitted attributes and parties."""

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
    """Return an estimator's hyper-parameters for a task, with `patience` if it is given."""
    values: dict[str, object] = {"task": task, "classes": classes}
    for name, field in list_hyper_parameters().items():
        # A grid search passes numpy scalars.
        value = getattr(estimator, name)
        if isinstance(value, np.generic):
            value = value.item()
        is_integer = int in (field.annotation, *get_args(field.annotation))
        if isinstance(value, int) and not isinstance(value, bool) and not is_integer:
            value = float(value)
        values[name] = value
    seed = draw_seed(estimator.random_state)
    if seed is not None:
        values["seed"] = seed
    if patience is not None:
        values["patience"] = patience
    return Params.parse(values)


def draw_seed(random_state: Any) -> int | None:
    """Return the seed of `random_state`; None if it is None."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))


def apply_sample_weights(
    X: FloatArray, label: FloatArray, weight: FloatArray, params: Params
) -> tuple[FloatArray, FloatArray, FloatArray, Params]:
    """Return data and parameters that train as if each sample were repeated by its weight.

    Training divides weights by their mean; therefore the parameters that are compared with sums of
    weights are divided by it, too. Samples of weight 0 are left out, since they would affect the
    buckets.
    """
    check_weights(weight)
    positive = weight > 0
    mean = float(np.mean(weight[positive]))
    scaled = ("l2", "min_child_weight", "min_gain")
    relative = params.model_copy(update={name: getattr(params, name) / mean for name in scaled})
    return X[positive], label[positive], weight[positive], relative


class FederatedEstimator(BaseEstimator):
    """The base class of the classifier and the regressor.

    Parameters
    ----------
    protocol : str
        The protocol of training. `"masked"`: on secret shares, with the parties as threads of this
        process. `"paper"`: the same with the paper's protocol, much slower. `"plain"`: in
        plaintext, the reference for both. The parties' model parts are joined after training, and
        `predict` runs in plaintext.
    partition : int, sequence or mapping
        The columns of each party in a single table. A number: that many parties, with columns
        spread evenly. A sequence of sequences, or a mapping from party names to sequences: the
        columns of each party, by position or name. The last party holds the label. Ignored if
        `fit` receives one table per party.
    cuts : str, optional
        How the parties disclose the cut count of each column to each other: `"exact"`,
        `"rounded"` (up to 1, 3, 7, 15, ...) or `"hidden"`. By default `"rounded"`; with
        `"paper"`, `"hidden"`.
    dealers : int
        The number of dealers, which generate correlated randomness: 1, or 3, of which no single
        one knows a mask. `"paper"` supports only 1.
    monotone_constraints : mapping or sequence, optional
        Constraints by column name or position, or one for every column: with 1, scores never
        decrease as the column increases; with -1, they never increase; 0 is no constraint. A
        missing value is smaller than all others.
    verbose : bool
        Whether to print the progress of training to stderr.
    random_state : int, RandomState or None
        The seed for sampling rows and columns: the hyper-parameter `seed`.
    importance_type : str
        `"split"`: `feature_importances_` are fractions of all splits. `"gain"`: fractions of the
        total gain.
    warm_start : bool
        Whether a second `fit` with the same rows and more `tables` adds tables to the existing
        model. Other parameters must not change. Not available with validation rows or early
        stopping.
    **params
        The hyper-parameters, by name, as in `privet.Params`.

    Attributes
    ----------
    model_ : Model
        The trained model.
    report_ : FitReport
        The time and traffic of training and, with a secure protocol, its disclosures; displayed
        as HTML in a notebook.
    encoders_ : tuple of Encoder
        The fitted encoder of each column, such as the ranks of categories.
    partition_ : dict
        The columns of each party, by position.
    evals_result_ : dict
        `{"validation": {"loss": [...]}}`: the mean loss on validation rows (`eval_set`, or the
        fraction `validation`) after each trained table. Empty without validation rows.
    best_iteration_ : int or None
        The table of the smallest validation loss, from 0.
    feature_importances_ : array
        The fraction of all splits, or of the total gain, of each column.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : array
        The names of the columns, if they have names.

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
        """The fraction of all splits, or of the total gain, of each column, in column order."""
        check_is_fitted(self)
        result = np.empty(self.n_features_in_)
        gains = self._gains if self.importance_type == "gain" else None
        result[self._order] = self.model_.compute_importances(gains)
        return result

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        """The position of each feature of the model among the columns passed to `fit`."""
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
        requested_params = params
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
            rows, row_contents = self._to_numeric(validation[0])
            rows = encode_columns(self.encoders_, row_contents, self._validate_predict_input(rows))
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
        inputs = fitting.make_fit_inputs(
            parties,
            label,
            weight,
            requested_params,
            protocol=self.protocol,
            cuts=self.cuts,
            partition=self.partition_,
            monotone_constraints=constraints,
            validation_rows=n_validation,
            labels=class_names,
        )
        previous = fitting.find_previous_fit(self, inputs) if self.warm_start else None
        if previous is not None and previous.inputs.tables == params.tables:
            return
        result, states, report = fit_parties(
            parties,
            label,
            params,
            self.protocol,
            self.cuts,
            weight,
            n_validation,
            [constraints[i] for i in self._order],
            previous,
            n_dealers=self.dealers,
            verbose=bool(self.verbose),
        )
        fitting.store_fit_state(self, fitting.FitState(inputs, result.model, states, report.losses))
        model = result.model
        if contents:
            encoders = tuple(self.encoders_[i] for i in self._order)
            model = replace(model, encoders=encoders)
        self.model_: Model = replace(model, classes=class_names)
        self.report_ = report.model_copy(update={"model": self.model_})
        self.evals_result_ = {"validation": {"loss": list(result.losses)}} if n_validation else {}
        self.best_iteration_ = find_best_table_count(result.losses) - 1 if n_validation else None
        trained = slice(len(X) - n_validation)
        columns = np.ascontiguousarray(X[trained, self._order].T)
        weight = None if weight is None else normalise_weights(weight)
        self._gains = compute_level_gains(self.model_, columns, label[trained], params, weight)

    def explain(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the columns' contributions to scores, (rows, columns, K), and the base, (K,)."""
        explanation = explain_scores(self.model_, self._make_features(X))
        return explanation.contributions.T[:, np.argsort(self._order)], explanation.base

    def _make_features(self, X: Any) -> FloatArray:
        """Return the features of new rows, in the order of the model: (n_features, n_samples)."""
        check_is_fitted(self)
        X, contents = self._to_numeric(X)
        X = encode_columns(self.encoders_, contents, self._validate_predict_input(X))
        return np.ascontiguousarray(X[:, self._order].T)

    def _predict(self, X: Any) -> FloatArray:
        columns = self._make_features(X)
        return self.model_.predict(columns)

    def _staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """Yield the predictions after each table."""
        for scores in self.model_.staged_scores(self._make_features(X)):
            yield self.model_.objective.predict_from_scores(scores)

    @staticmethod
    def _to_numeric(X: Any) -> tuple[Any, dict[int, ColumnSchema]]:
        """Return numeric tables, one or one per party, and the schemas of the converted columns."""
        return to_numeric_tables(X) if is_table_list(X) else to_numeric(X)

    def _join(self, X: Any) -> tuple[FloatArray, dict[str, list[int]]]:
        """Check the input of `fit`; return all columns in one array, and the partition."""
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
        """Check the input of `predict` against that of `fit`."""
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
