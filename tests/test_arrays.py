import numpy as np
import pytest
from fakes import model
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flwr_agent import arrays
from flwr_agent.errors import ProtocolError

any_fp32 = hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0), elements=st.floats(width=32))


@given(any_fp32)
def test_a_view_of_a_flower_array_has_its_bits(values):
    found = arrays.view(Array(values))
    assert found.shape == values.shape
    assert found.tobytes() == values.tobytes()


@given(any_fp32)
def test_our_array_bytes_are_flowers(values):
    assert arrays.to_array(values).data == Array(values).data


def test_a_view_is_no_copy_and_cannot_be_written():
    array = Array(np.arange(6, dtype=np.float32))
    found = arrays.view(array)
    assert np.shares_memory(found, np.frombuffer(array.data, dtype=np.uint8))
    assert not found.flags.writeable


def test_a_transposed_array_is_sent_in_c_order():
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert np.array_equal(arrays.view(arrays.to_array(values)), values)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        arrays.view(Array("float32", (1,), "numpy.ndarray", data))


@given(st.data())
def test_a_damaged_header_or_length_never_escapes_as_another_error(data):
    good = Array(np.arange(5, dtype=np.float32)).data
    cut = data.draw(st.integers(0, len(good)))
    flip = data.draw(st.integers(0, 127))
    bad = bytearray(good[:cut] + data.draw(st.binary(max_size=3)))
    if flip < len(bad):
        bad[flip] ^= data.draw(st.integers(1, 255))
    try:
        found = arrays.view(Array("float32", (5,), "numpy.ndarray", bytes(bad)))
    except ProtocolError:
        return
    assert found.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "bool", ">f4"])
def test_only_fp32_is_read_and_sent(dtype):
    values = np.ones(3).astype(dtype)
    with pytest.raises(ProtocolError, match="float32"):
        arrays.view(Array(values))
    with pytest.raises(ProtocolError, match="float32"):
        arrays.to_array(values)


def test_a_record_can_be_built_without_keeping_its_source():
    source = model()
    record = arrays.to_record(source, keep_input=False)
    assert source == {}
    assert arrays.digest(arrays.from_record(record)) == arrays.digest(model())


def test_a_bad_array_in_a_record_is_named():
    record = ArrayRecord({"actor/fine": Array(np.ones(1, "f4")), "actor/bad": Array(np.ones(1))})
    with pytest.raises(ProtocolError, match="actor/bad"):
        arrays.from_record(record)


def test_digest_ignores_order_and_sees_names_shapes_and_every_bit():
    base = model()
    assert arrays.digest(dict(reversed(base.items()))) == arrays.digest(base)
    renamed = {name.replace("head", "tail"): values for name, values in base.items()}
    reshaped = base | {"actor/embed": base["actor/embed"].reshape(3, 4)}
    negative_zero = base | {"actor/scale": np.asarray(-0.0, "f4")}
    zero = base | {"actor/scale": np.asarray(0.0, "f4")}
    assert len({arrays.digest(a) for a in (base, renamed, reshaped, negative_zero, zero)}) == 5


def _changed(name, values):
    return {**model(), name: values}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({k: v for k, v in model().items() if k != "actor/embed"}, "missing, first 'actor/embed'"),
        (_changed("actor/more", np.zeros(1, "f4")), "not asked for, first 'actor/more'"),
        (_changed("actor/embed", np.zeros((3, 4), "f4")), "actor/embed has shape"),
        (_changed("actor/embed", np.zeros((4, 3))), "actor/embed is float64"),
        (_changed("actor/scale", np.asarray(np.nan, "f4")), "actor/scale holds NaN"),
        (_changed("actor/embed", np.full((4, 3), -np.inf, "f4")), "actor/embed holds NaN"),
    ],
)
def test_arrays_unlike_the_expected_ones_are_refused_by_name(bad, message):
    with pytest.raises(ProtocolError, match=message):
        arrays.check_like(bad, model())


def test_one_nan_in_the_last_block_is_found():
    big = np.zeros(3 * arrays.BLOCK + 1, np.float32)
    arrays.check_like({"w": big}, {"w": big})
    big[-1] = np.nan
    with pytest.raises(ProtocolError, match="NaN"):
        arrays.check_like({"w": big}, {"w": big})


@given(st.integers(1, 9), st.data(), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_value_that_is_no_number_is_found_wherever_it_stands_also_among_zeros(size, data, bad):
    values = np.zeros(size, np.float32)
    values[data.draw(st.integers(0, size - 1))] = bad
    with pytest.raises(ProtocolError, match="NaN"):
        arrays.check_like({"w": values}, {"w": values})


def test_large_finite_values_whose_sum_overflows_pass():
    huge = np.full(1000, np.finfo(np.float32).max, np.float32)
    arrays.check_like({"w": huge}, {"w": huge})


def test_a_saved_file_loads_bit_for_bit_and_leaves_no_temporary(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays.save(path, model(), {"round": "3"})
    assert arrays.digest(arrays.load(path)) == arrays.digest(model())
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_distance_is_taken_over_all_blocks_and_scalars():
    size = 2 * arrays.BLOCK + 3
    one = {"w": np.zeros((size, 1), np.float32), "s": np.float32(1.0)}
    other = {"w": np.full((size, 1), 2.0, np.float32), "s": np.float32(-1.0)}
    assert arrays.distance(one, other) == pytest.approx(2 * (size + 1) ** 0.5, rel=1e-12)
    assert arrays.distance(one, one) == 0.0
