"""What a gate is: what the dealer does, what participants do and what it costs, side by side."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from typing_extensions import ParamSpec

from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

_Values = ParamSpec("_Values")
_Result_co = TypeVar("_Result_co", covariant=True)


class _Halves(Protocol[_Values, _Result_co]):
    """What a gate is made of. All halves take the same values and return the same kind."""

    name: str

    def deal(
        self, dealer: Dealer, *values: _Values.args, **options: _Values.kwargs
    ) -> _Result_co: ...

    def run(self, party: Party, *values: _Values.args, **options: _Values.kwargs) -> _Result_co: ...

    def count(
        self, counter: Counter, *values: _Values.args, **options: _Values.kwargs
    ) -> _Result_co: ...


class Gate:
    """A step of a program that needs the dealer, or the network, or both.

    A gate has a `name` and three halves:

        deal(dealer, ...)     draw masks, and derive from them what the participants need
        run(party, ...)       draw the same, open and compute
        count(counter, ...)   say what is opened and derived

    Called with a runtime, it does the half that the runtime is there for. `deal` and `run` must
    draw the same values from the dealer's randomness in the same order; a running tag catches it if
    they do not. Options, which are public, go by keyword and into the tag.
    """

    def __call__(
        self: _Halves[_Values, _Result_co],
        runtime: Runtime,
        *values: _Values.args,
        **options: _Values.kwargs,
    ) -> _Result_co:
        """Do the half of this gate that the runtime is there for."""
        with runtime.step(self.name):
            runtime.note(_options(options))
            if isinstance(runtime, Party):
                return self.run(runtime, *values, **options)
            if isinstance(runtime, Dealer):
                return self.deal(runtime, *values, **options)
            assert isinstance(runtime, Counter)
            return self.count(runtime, *values, **options)


def _options(options: Any) -> str:
    return str({name: value for name, value in options.items() if not callable(value)})
