"""Openings: the choice between all-to-all and reduce-scatter, and its cost."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.rings import Z36, Z64, Ring, get_integer_ring
from privet.runtime.cost import Cost
from privet.runtime.opening import DEFAULT_ALL_TO_ALL_BYTES, NetworkModel, OpeningPlan
from tests.runtime.harness import check_count, play
from tests.runtime.test_party import counting, opening

PAPER_NETWORK = NetworkModel(delay=0.005, rate=12.5e6)

rings = st.sampled_from([1, 5, 8, 12, 32, 36, 64]).map(get_integer_ring)
plans = st.builds(
    lambda vectors, n, network: OpeningPlan(
        [r for r, _ in vectors], [s for _, s in vectors], n, network
    ),
    st.lists(st.tuples(rings, st.integers(0, 5000)), min_size=1, max_size=3),
    st.integers(2, 9),
    st.none() | st.builds(NetworkModel, st.floats(0, 0.1), st.floats(1e4, 1e9)),
)


@given(plans)
def test_slices_partition_every_vector(plan: OpeningPlan) -> None:
    """Consecutive slices, one for each participant, whose lengths differ by at most one."""
    for k, length in enumerate(plan.lengths):
        slices = [bounds[k] for bounds in plan.slice_bounds()]
        assert len(slices) == plan.n_parties
        assert [slices[0].start, slices[-1].stop] == [0, length]
        assert all(a.stop == b.start for a, b in pairwise(slices))
        sizes = [bounds.stop - bounds.start for bounds in slices]
        assert max(sizes) - min(sizes) <= 1


@given(plans)
def test_cost_of_a_plan(plan: OpeningPlan) -> None:
    n, whole = plan.n_parties, plan.payload.nbytes
    if not plan.is_reduce_scatter:
        assert (plan.rounds, plan.nbytes) == (1, n * (n - 1) * whole)
        return
    assert plan.rounds == 2
    # In every slice of every vector, one byte of each chunk size below a byte can be partly empty.
    spare = 3 * n * len(plan.rings)
    assert 0 <= plan.nbytes - 2 * (n - 1) * whole <= 2 * (n - 1) * spare


@given(st.integers(3, 9), st.floats(1e-4, 0.2), st.floats(1e5, 1e9), st.integers(0, 10**6))
def test_a_known_network_selects_the_faster_plan(
    n: int, delay: float, rate: float, size: int
) -> None:
    plan = OpeningPlan([get_integer_ring(8)], [size], n, NetworkModel(delay, rate))
    all_to_all = delay + n * (n - 1) * size / rate
    reduce_scatter = 2 * delay + 2 * (n - 1) * size / rate
    one_byte = (n - 1) * (n - 2) / rate  # the change of the difference with one more byte
    if plan.is_reduce_scatter:
        assert reduce_scatter <= all_to_all + one_byte
    else:
        assert all_to_all <= reduce_scatter + one_byte
    seconds = plan.rounds * delay + plan.nbytes / rate
    assert seconds == pytest.approx(reduce_scatter if plan.is_reduce_scatter else all_to_all)


def test_an_unknown_network_selects_by_size() -> None:
    assert DEFAULT_ALL_TO_ALL_BYTES == 12_000
    for size, is_reduce_scatter in ((12_000, False), (12_001, True)):
        assert OpeningPlan([get_integer_ring(8)], [size], 3).is_reduce_scatter is is_reduce_scatter
        assert not OpeningPlan([get_integer_ring(8)], [size], 2).is_reduce_scatter
    assert PAPER_NETWORK.max_all_to_all_bytes(4) == 10416
    assert NetworkModel(0.0, 1e9).max_all_to_all_bytes(3) == 0


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("ring", [Z64, Z36, get_integer_ring(1)], ids=lambda ring: ring.name)
@pytest.mark.parametrize(
    "network", [None, PAPER_NETWORK, NetworkModel(1.0, 1e9), NetworkModel(0.0, 1e9)]
)
def test_participants_and_counters_use_the_network(
    n: int, ring: Ring, network: NetworkModel | None
) -> None:
    rng = np.random.default_rng(0)
    length = 3001
    inputs = [[rng.integers(0, 2**63, length).astype(ring.dtype)] for _ in range(n)]
    views = play(partial(opening, rings=[ring]), n, inputs, network)
    total = ring.reduce_modulus(ring.sum(np.stack([parts[0] for parts in inputs]), 0))
    for view in views:
        assert (view.result[0] == total).all()
    program = partial(counting, shapes=[(length,)], rings=[ring])
    costs = check_count(program, views, network)
    limit = DEFAULT_ALL_TO_ALL_BYTES
    if network is not None:
        limit = int(network.delay * network.rate / ((n - 1) * max(1, n - 2)))
    if n == 2 or ring.count_packed_bytes(length) <= limit:
        assert costs == {"": Cost(1, n * (n - 1) * ring.count_packed_bytes(length), 0)}
    else:
        slices = [length * (k + 1) // n - length * k // n for k in range(n)]
        sent = sum(ring.count_packed_bytes(size) for size in slices)
        assert costs == {"": Cost(2, 2 * (n - 1) * sent, 0)}
        assert sent <= ceil(length * ring.bits / 8) + 2 * n
