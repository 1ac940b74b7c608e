"""Export of whole models as ONNX and CatBoost files.

All inputs are numbers. The metadata of the file describe each input (`describe_inputs`): how
`data.encoding` converts the dates and categories of a column to numbers.

The ONNX input `features` is an array of doubles, (rows, features), with NaN for a missing value.
The output of a regression is `prediction`; the outputs of a classification are `class`, by name if
names are known, and `probabilities`. Each output of a decision table becomes an oblivious tree,
whose levels have one split each. All computation is in double precision, as in Privet.

CatBoost stores features as 32-bit floats and tests whether a value is *above* a border. The border
of a split is the largest 32-bit float below its threshold, so that every 32-bit float goes the same
way as in Privet. CatBoost rounds doubles first, which can move a value across a threshold.
`RawFormulaVal` is the score in Privet. `Probability` is the same for two classes. For more classes,
CatBoost returns the probability of each class against the rest, and Privet's probabilities are
proportional to these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.arrays import FloatArray
from privet.boosting.model import Feature, Model
from privet.data.encoding import Encoder
from privet.errors import ModelError, UnavailableError
from privet.filesystem import write_atomically
from privet.objectives.classification import Classification, OneVsRest
from privet.objectives.regression import Regression
from privet.spec.column_types import NUMBER
from privet.version import __version__

INPUT_METADATA_KEY = "privet.inputs"
"""The metadata key of the description of the inputs."""
_UNITS = {
    "boolean": "0 or 1",
    "date": "days since 1970-01-01",
    "time": "seconds since 1970-01-01",
}


def describe_inputs(model: Model) -> str:
    """Describe the inputs of a model, in order, as JSON. Missing values are NaN."""
    encoded = [
        (encoder, rank) for encoder in model.encoders for rank in range(len(encoder.feature_names))
    ]
    if not encoded:
        encoded = [(Encoder(feature.name, NUMBER), 0) for feature in model.features]
    inputs = zip(model.features, encoded, strict=True)
    return json.dumps([_describe_input(feature, *encoding) for feature, encoding in inputs])


def _describe_input(feature: Feature, encoder: Encoder, category_rank: int) -> dict[str, Any]:
    column_type = encoder.column_type
    description: dict[str, Any] = {
        "name": feature.name,
        "owner": feature.owner,
        "kind": column_type.name,
    }
    if column_type.one_hot:
        # A category without a split can have no name (`Encoder.restrict_to_splits`).
        description |= {
            "column": encoder.column,
            "one_for": encoder.categories[category_rank] or None,
        }
        description["otherwise"] = "0, for missing values, too"
    elif column_type.name == "category":
        description["numbers"] = {text: number for number, text in enumerate(encoder.categories)}
        description["others"] = len(encoder.categories)
    elif column_type.name in _UNITS:
        description["number"] = _UNITS[column_type.name]
    return description


INPUT_NAME = "features"
_OPSETS = {"": 21, "ai.onnx.ml": 5}
"""The first operator sets with trees of doubles and double results."""
_IR_VERSION = 10
_LESS, _SUM, _NO_TRANSFORM = 1, 1, 0  # enum values of the operator


def check_onnx() -> None:
    """Raise UnavailableError unless ONNX files can be written."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise UnavailableError(
            "onnx, which writes ONNX files, is not installed: pip install 'privet[export]'"
        ) from None


def save_onnx(model: Model, path: str | Path) -> None:
    """Write a model as an ONNX file, atomically."""
    write_atomically(path, to_onnx(model).SerializeToString())


def to_onnx(model: Model) -> Any:
    """Return a model as an `onnx.ModelProto`."""
    check_onnx()
    from onnx import helper

    graph, objective_type = _OnnxGraph(model), type(model.objective)
    scores = graph.add_scores()
    if objective_type is Regression:
        graph.add_output("prediction", graph.add("Squeeze", scores, [1]))
    elif objective_type is Classification:
        graph.add_class_outputs(graph.add_binary_probabilities(scores))
    elif objective_type is OneVsRest:
        graph.add_class_outputs(graph.add_one_vs_rest_probabilities(scores))
    else:  # a custom objective, whose scores have no known meaning
        raise ModelError(f"{model.task}: what its scores mean cannot be said in ONNX")
    proto = helper.make_model(
        graph.build(),
        opset_imports=[helper.make_opsetid(*opset) for opset in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="privet",
        producer_version=__version__,
    )
    helper.set_model_props(proto, {INPUT_METADATA_KEY: describe_inputs(model)})
    return proto


class _OnnxGraph:
    """Builder of an ONNX graph, in which values are referred to by name."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []

    def add(self, operator: str, *inputs: object, **attributes: Any) -> str:
        """Apply an operator to named values and constants; return the name of the result."""
        from onnx import helper

        names = [each if isinstance(each, str) else self._add_constant(each) for each in inputs]
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def add_output(self, name: str, value: str, columns: int | None = None) -> None:
        """Make a value a numeric output with one row for each sample."""
        from onnx import TensorProto

        self._add_typed_output(
            name, value, TensorProto.DOUBLE, [] if columns is None else [columns]
        )

    def add_scores(self) -> str:
        """Add the scores: (rows, outputs)."""
        model = self._model
        trees = self.add(
            "TreeEnsemble",
            INPUT_NAME,
            domain="ai.onnx.ml",
            n_targets=len(model.base_score),
            aggregate_function=_SUM,
            post_transform=_NO_TRANSFORM,
            **_make_tree_attributes(model),
        )
        return self.add("Add", trees, model.base_score[None])

    def add_binary_probabilities(self, scores: str) -> str:
        """Add the probabilities of two classes: the sigmoid, as in `compute_sigmoid`."""
        half = self.add("Mul", self.add("Tanh", self.add("Mul", scores, 0.5)), 0.5)
        last = self.add("Add", half, 0.5)
        return self.add("Concat", self.add("Sub", 1.0, last), last, axis=1)

    def add_one_vs_rest_probabilities(self, scores: str) -> str:
        """Add probabilities proportional to those of each class against the rest.

        The logarithms are min(s, 0) - log(1 + e^-|s|), which does not overflow.
        """
        powers = self.add("Exp", self.add("Neg", self.add("Abs", scores)))
        logarithms = self.add("Log", self.add("Add", powers, 1.0))
        rest = self.add("Sub", self.add("Min", scores, 0.0), logarithms)
        return self.add("Softmax", rest, axis=1)

    def add_class_outputs(self, probabilities: str) -> None:
        """Make classes and their probabilities outputs; the last of equally likely classes wins."""
        from onnx import TensorProto

        names = self._model.classes
        element_type = TensorProto.STRING if names else TensorProto.INT64
        classes = self.add("ArgMax", probabilities, axis=1, keepdims=0, select_last_index=1)
        if names:
            classes = self.add("Gather", np.array(names, dtype=object), classes)
        self._add_typed_output("class", classes, element_type, [])
        self.add_output("probabilities", probabilities, max(2, len(self._model.base_score)))

    def build(self) -> Any:
        """Return the graph."""
        from onnx import TensorProto, helper

        shape: list[str | int] = ["rows", len(self._model.features)]
        return helper.make_graph(
            self._nodes,
            "decision tables",
            [helper.make_tensor_value_info(INPUT_NAME, TensorProto.DOUBLE, shape)],
            self._outputs,
            self._constants,
        )

    def _add_typed_output(
        self, name: str, value: str, onnx_type: int, columns: Sequence[int]
    ) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, onnx_type, ["rows", *columns]))

    def _add_constant(self, value: object) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def _make_tree_attributes(model: Model) -> dict[str, Any]:
    """Return the attributes of the tree operator: a tree for each table and output.

    The nodes of a tree are numbered level by level. The children of node k are nodes 2k and 2k + 1
    of the next level, or these leaves; rows that go left continue at 2k.
    """
    from onnx import numpy_helper

    tables, depth = model.feature.shape
    inner, leaves = (1 << depth) - 1, 1 << depth
    levels = np.repeat(np.arange(depth), 1 << np.arange(depth))
    in_level = np.concatenate([np.arange(1 << level) for level in range(depth)])
    last = levels == depth - 1
    outputs = len(model.base_score)
    n_trees = tables * outputs
    tree = np.arange(n_trees)[:, None]
    first = np.where(last, 2 * in_level, (2 << levels) - 1 + 2 * in_level)
    left_children = np.where(last, leaves * tree, inner * tree) + first

    def per_node(of_level: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat a value of each table level for the nodes of all trees."""
        return np.repeat(of_level[:, levels], outputs, axis=0).reshape(-1)

    at_leaf = np.tile(last, n_trees).astype(np.int64).tolist()
    modes = np.full(n_trees * inner, _LESS, dtype=np.uint8)
    targets = np.repeat(np.tile(np.arange(outputs), tables), leaves)
    return {
        "tree_roots": (inner * tree[:, 0]).tolist(),
        "nodes_featureids": per_node(model.feature).tolist(),
        "nodes_splits": numpy_helper.from_array(per_node(model.threshold)),
        "nodes_modes": numpy_helper.from_array(modes),
        "nodes_missing_value_tracks_true": [1] * (n_trees * inner),
        "nodes_truenodeids": left_children.reshape(-1).tolist(),
        "nodes_trueleafs": at_leaf,
        "nodes_falsenodeids": (left_children + 1).reshape(-1).tolist(),
        "nodes_falseleafs": at_leaf,
        "leaf_targetids": targets.tolist(),
        "leaf_weights": numpy_helper.from_array(model.leaf_values.reshape(-1)),
    }


_LOSSES = {Regression: "RMSE", Classification: "Logloss", OneVsRest: "MultiClassOneVsAll"}


def save_catboost(model: Model, path: str | Path) -> None:
    """Write a model for CatBoost, atomically."""
    write_atomically(path, json.dumps(to_catboost(model)).encode())


def to_catboost(model: Model) -> dict[str, Any]:
    """Return a model as the JSON object that CatBoost reads."""
    loss = _LOSSES.get(type(model.objective))
    if loss is None:
        raise ModelError(f"{model.task}: CatBoost has no loss that says what its scores mean")
    borders = make_borders(model.threshold)
    borders_by_feature = [
        np.unique(borders[model.feature == j]) for j in range(len(model.features))
    ]
    starts = np.cumsum([0, *map(len, borders_by_feature)])
    trees = []
    for table in range(model.n_tables):
        feature_borders = zip(model.feature[table].tolist(), borders[table].tolist(), strict=True)
        splits = [
            {
                "border": border,
                "float_feature_index": j,
                "split_index": int(starts[j] + np.searchsorted(borders_by_feature[j], border)),
                "split_type": "FloatFeature",
            }
            for j, border in feature_borders
        ]
        # The first split is the lowest bit of a leaf index in CatBoost, the highest in Privet.
        trees.append(
            {"splits": splits[::-1], "leaf_values": model.leaf_values[table].T.ravel().tolist()}
        )
    return {
        "features_info": {
            "float_features": [
                {
                    "borders": borders_by_feature[j].tolist(),
                    "feature_id": feature.name,
                    "feature_index": j,
                    "flat_feature_index": j,
                    "has_nans": True,
                    "nan_value_treatment": "AsFalse",
                }
                for j, feature in enumerate(model.features)
            ]
        },
        "model_info": {
            **_describe_objective(model, loss),
            INPUT_METADATA_KEY: describe_inputs(model),
        },
        "oblivious_trees": trees,
        "scale_and_bias": [1, model.base_score.tolist()],
    }


def make_borders(thresholds: FloatArray) -> FloatArray:
    """Return the 32-bit borders x for thresholds t: a value is above x if it is not below t.

    A threshold of -inf, which sends only missing values left, becomes the lowest 32-bit float. One
    of inf, which sends all values left, becomes the largest.
    """
    largest = np.finfo(np.float32).max
    rounded = np.clip(thresholds, -largest, largest).astype(np.float32)
    below = np.nextafter(rounded, -largest)
    return np.where(rounded < thresholds, rounded, below).astype(np.float64)


def _describe_objective(model: Model, loss: str) -> dict[str, Any]:
    """Return the task and the classes of a model in the format of CatBoost."""
    description: dict[str, Any] = {
        "params": {"loss_function": {"type": loss}, "flat_params": {"loss_function": loss}}
    }
    if model.objective.is_classification:
        n_classes = max(2, len(model.base_score))
        description["class_params"] = {
            "class_label_type": "String" if model.classes else "Integer",
            "class_names": list(model.classes) or list(range(n_classes)),
            "class_to_label": list(range(n_classes)),
            "classes_count": 0,
        }
    return description
