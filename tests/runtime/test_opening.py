"""How openings travel: what that costs is decided in one place, and known before."""

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

PAPER = NetworkModel(delay=0.005, rate=12.5e6)

rings = st.sampled_from([1, 5, 8, 12, 32, 36, 64]).map(get_integer_ring)
travels = st.builds(
    lambda vectors, n, link: OpeningPlan([r for r, _ in vectors], [s for _, s in vectors], n, link),
    st.lists(st.tuples(rings, st.integers(0, 5000)), min_size=1, max_size=3),
    st.integers(2, 9),
    st.none() | st.builds(NetworkModel, st.floats(0, 0.1), st.floats(1e4, 1e9)),
)


@given(travels)
def test_slices_are_all_of_it(travel: OpeningPlan) -> None:
    """Every participant has a slice of every vector: one after the other, as even as can be."""
    for k, length in enumerate(travel.lengths):
        slices = [cut[k] for cut in travel.slice_bounds()]
        assert len(slices) == travel.n_parties
        assert [slices[0].start, slices[-1].stop] == [0, length]
        assert all(a.stop == b.start for a, b in pairwise(slices))
        sizes = [cut.stop - cut.start for cut in slices]
        assert max(sizes) - min(sizes) <= 1


@given(travels)
def test_what_it_costs(travel: OpeningPlan) -> None:
    n, whole = travel.n_parties, travel.payload.nbytes
    if not travel.is_reduce_scatter:
        assert (travel.rounds, travel.nbytes) == (1, n * (n - 1) * whole)
        return
    assert travel.rounds == 2
    # A byte of each size of chunks below a byte, of every slice of every vector, may not be full.
    spare = 3 * n * len(travel.rings)
    assert 0 <= travel.nbytes - 2 * (n - 1) * whole <= 2 * (n - 1) * spare


@given(st.integers(3, 9), st.floats(1e-4, 0.2), st.floats(1e5, 1e9), st.integers(0, 10**6))
def test_a_known_link_decides_what_is_faster(n: int, delay: float, rate: float, size: int) -> None:
    travel = OpeningPlan([get_integer_ring(8)], [size], n, NetworkModel(delay, rate))
    at_once = delay + n * (n - 1) * size / rate
    in_slices = 2 * delay + 2 * (n - 1) * size / rate
    one_byte = (n - 1) * (n - 2) / rate  # by which the two differ for a byte more
    if travel.is_reduce_scatter:
        assert in_slices <= at_once + one_byte
    else:
        assert at_once <= in_slices + one_byte
    taken = travel.rounds * delay + travel.nbytes / rate
    assert taken == pytest.approx(in_slices if travel.is_reduce_scatter else at_once)


def test_where_nobody_knows_the_link() -> None:
    assert DEFAULT_ALL_TO_ALL_BYTES == 12_000
    for size, in_slices in ((12_000, False), (12_001, True)):
        assert OpeningPlan([get_integer_ring(8)], [size], 3).is_reduce_scatter is in_slices
        assert not OpeningPlan([get_integer_ring(8)], [size], 2).is_reduce_scatter
    assert PAPER.max_all_to_all_bytes(4) == 10416
    assert NetworkModel(0.0, 1e9).max_all_to_all_bytes(3) == 0


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("ring", [Z64, Z36, get_integer_ring(1)], ids=lambda ring: ring.name)
@pytest.mark.parametrize("link", [None, PAPER, NetworkModel(1.0, 1e9), NetworkModel(0.0, 1e9)])
def test_participants_and_counters_go_by_the_link(
    n: int, ring: Ring, link: NetworkModel | None
) -> None:
    rng = np.random.default_rng(0)
    length = 3001
    inputs = [[rng.integers(0, 2**63, length).astype(ring.dtype)] for _ in range(n)]
    views = play(partial(opening, rings=[ring]), n, inputs, link)
    total = ring.reduce_modulus(ring.sum(np.stack([parts[0] for parts in inputs]), 0))
    for view in views:
        assert (view.result[0] == total).all()
    program = partial(counting, shapes=[(length,)], rings=[ring])
    found = check_count(program, views, link)
    most = DEFAULT_ALL_TO_ALL_BYTES
    if link is not None:
        most = int(link.delay * link.rate / ((n - 1) * max(1, n - 2)))
    if n == 2 or ring.count_packed_bytes(length) <= most:
        assert found == {"": Cost(1, n * (n - 1) * ring.count_packed_bytes(length), 0)}
    else:
        slices = [length * (k + 1) // n - length * k // n for k in range(n)]
        sent = sum(ring.count_packed_bytes(size) for size in slices)
        assert found == {"": Cost(2, 2 * (n - 1) * sent, 0)}
        assert sent <= ceil(length * ring.bits / 8) + 2 * n
