import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flwr_agent import codec
from flwr_agent.arrays import plain_bytes, to_array
from flwr_agent.errors import ProtocolError
from flwr_agent.seeds import rng

finite = st.floats(-(2.0**66), 2.0**66, width=32)
shapes = st.sampled_from([(), (1,), (255,), (256,), (257,), (3, 4), (2, 0), (5, 300)])
values_of = shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=finite))


def there_and_back(values, compression, *seed):
    return codec.decode(codec.encode(values, compression, rng("test", *seed)), compression)


@given(values_of)
def test_bf16_is_torchs_rounding(values):
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(values.copy()).to(torch.bfloat16).float().numpy()
    assert there_and_back(values, "bf16").tobytes() == expected.tobytes()


@given(values_of)
def test_int8_is_within_one_step_of_its_group_and_keeps_shape_and_zeros(values):
    found = there_and_back(values, "int8")
    assert (found.shape, found.dtype) == (values.shape, np.float32)
    for start in range(0, values.size, codec.GROUP):
        group, its = (a.reshape(-1)[start : start + codec.GROUP] for a in (values, found))
        assert np.all(np.abs(group - its) <= np.abs(group).max() / codec.LARGEST * 1.0001 + 1e-44)
        assert np.all(its[group == 0] == 0)


def test_int8_is_right_on_average():
    values = rng("values").standard_normal(codec.GROUP).astype(np.float32)
    found = np.mean([there_and_back(values, "int8", i) for i in range(2_000)], axis=0)
    step = np.abs(values).max() / codec.LARGEST
    assert np.abs(found - values).max() < 5 * step / 2 / np.sqrt(2_000)


def test_int8_draws_from_its_generator_alone():
    values = rng("values").standard_normal(1_000).astype(np.float32)
    assert np.array_equal(there_and_back(values, "int8", 1), there_and_back(values, "int8", 1))
    assert not np.array_equal(there_and_back(values, "int8", 1), there_and_back(values, "int8", 2))


@pytest.mark.parametrize(("compression", "share"), [("bf16", 0.5), ("int8", 0.254)])
def test_a_large_array_takes_its_share_of_the_bytes(compression, share):
    array = codec.encode(np.zeros((1_000, 1_000), "f4"), compression, rng(0))
    assert len(array.data) == codec.num_bytes(1_000_000, compression)
    assert len(array.data) / plain_bytes((1_000, 1_000)) == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("compression", ["bf16", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_cannot_be_sent(compression, bad):
    with pytest.raises(ProtocolError, match="NaN or infinity"):
        codec.encode(np.float32([1, bad]), compression, rng(0))


GOOD = codec.encode(np.ones((2, 3), "f4"), "int8", rng(0))


@pytest.mark.parametrize(
    "array",
    [
        to_array(np.ones((2, 3), "f4")),
        codec.encode(np.ones((2, 3), "f4"), "bf16", rng(0)),
        Array("int8", (2, 3), "int8", GOOD.data[:-1]),
        Array("int8", (2, 4), "int8", GOOD.data),
        Array("int8", (-2, -3), "int8", GOOD.data),
        Array("float32", (2, 3), "int8", GOOD.data),
    ],
)
def test_an_array_that_is_not_what_was_asked_for_is_refused(array):
    with pytest.raises(ProtocolError):
        codec.decode(array, "int8")
