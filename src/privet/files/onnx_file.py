"""A whole model as an ONNX file, for programs that know nothing of this software.

The input `features` is a table of doubles, (rows, features), NaN where a value is missing: the
model's metadata say what each is (`files.input_note`). A regression's output is `prediction`, a
classification's are `class`, by name where names are known, and `probabilities`.

A table becomes a tree whose levels ask the same, one for each output; everything is computed in
double precision, as we do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.boosting.model import Model
from privet.errors import ModelError, UnavailableError
from privet.files.atomic import write_atomically
from privet.files.input_note import KEY, input_note
from privet.terms.objectives import Classification, OneVsRest, Regression
from privet.version import __version__

INPUT = "features"
_OPSETS = {"": 21, "ai.onnx.ml": 5}
"""The first that has trees of doubles with double results."""
_IR_VERSION = 10
_LESS, _SUM, _NO_TRANSFORM = 1, 1, 0  # as the operator numbers them


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

    graph, kind = _Graph(model), type(model.objective)
    scores = graph.scores()
    if kind is Regression:
        graph.output("prediction", graph.add("Squeeze", scores, [1]))
    elif kind is Classification:
        graph.classes(graph.of_two(scores))
    elif kind is OneVsRest:
        graph.classes(graph.in_proportion(scores))
    else:  # somebody's own, whose scores may mean anything
        raise ModelError(f"{model.task}: what its scores mean cannot be said in ONNX")
    result = helper.make_model(
        graph.finish(),
        opset_imports=[helper.make_opsetid(*opset) for opset in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="privet",
        producer_version=__version__,
    )
    helper.set_model_props(result, {KEY: input_note(model)})
    return result


class _Graph:
    """A graph that grows, operator by operator; values go by their names."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []

    def add(self, operator: str, *inputs: object, **attributes: Any) -> str:
        """Apply an operator to values by name, and to constants; return the result's name."""
        from onnx import helper

        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def output(self, name: str, value: str, columns: int | None = None) -> None:
        """Make a value an output: numbers, a row a sample."""
        from onnx import TensorProto

        self._output(name, value, TensorProto.DOUBLE, [] if columns is None else [columns])

    def scores(self) -> str:
        """Return the scores: (rows, outputs)."""
        model = self._model
        trees = self.add(
            "TreeEnsemble",
            INPUT,
            domain="ai.onnx.ml",
            n_targets=len(model.base_score),
            aggregate_function=_SUM,
            post_transform=_NO_TRANSFORM,
            **_trees(model),
        )
        return self.add("Add", trees, model.base_score[None])

    def of_two(self, scores: str) -> str:
        """Return the probabilities of two classes: the sigmoid, by `terms.objectives`."""
        half = self.add("Mul", self.add("Tanh", self.add("Mul", scores, 0.5)), 0.5)
        last = self.add("Add", half, 0.5)
        return self.add("Concat", self.add("Sub", 1.0, last), last, axis=1)

    def in_proportion(self, scores: str) -> str:
        """Return probabilities in proportion to those of each class against the rest.

        Their logarithms are min(s, 0) - log(1 + e^-|s|), without overflow.
        """
        powers = self.add("Exp", self.add("Neg", self.add("Abs", scores)))
        logarithms = self.add("Log", self.add("Add", powers, 1.0))
        rest = self.add("Sub", self.add("Min", scores, 0.0), logarithms)
        return self.add("Softmax", rest, axis=1)

    def classes(self, probabilities: str) -> None:
        """Make classes and their probabilities outputs: the last class, of several alike."""
        from onnx import TensorProto

        names = self._model.classes
        kind = TensorProto.STRING if names else TensorProto.INT64
        found = self.add("ArgMax", probabilities, axis=1, keepdims=0, select_last_index=1)
        if names:
            found = self.add("Gather", np.array(names, dtype=object), found)
        self._output("class", found, kind, [])
        self.output("probabilities", probabilities, max(2, len(self._model.base_score)))

    def finish(self) -> Any:
        """Return the graph."""
        from onnx import TensorProto, helper

        shape: list[str | int] = ["rows", len(self._model.features)]
        return helper.make_graph(
            self._nodes,
            "decision tables",
            [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, shape)],
            self._outputs,
            self._constants,
        )

    def _output(self, name: str, value: str, kind: int, columns: Sequence[int]) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["rows", *columns]))

    def _constant(self, value: object) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def _trees(model: Model) -> dict[str, Any]:
    """Return what the trees' operator takes: a tree for each table and output.

    Nodes of a tree are numbered level by level; node k of a level has the children 2k, where a
    sample goes that passes the test, and 2k + 1 of the next, or these leaves.
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
    passing = np.where(last, leaves * tree, inner * tree) + first

    def per_node(of_level: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Spread what levels of tables have over the nodes of all trees."""
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
        "nodes_truenodeids": passing.reshape(-1).tolist(),
        "nodes_trueleafs": at_leaf,
        "nodes_falsenodeids": (passing + 1).reshape(-1).tolist(),
        "nodes_falseleafs": at_leaf,
        "leaf_targetids": targets.tolist(),
        "leaf_weights": numpy_helper.from_array(model.leaf_values.reshape(-1)),
    }
