import numpy as np
from flwr.app import Array
from hypothesis import given
from hypothesis.extra import numpy as hnp

from flwr_agent import arrays
from flwr_agent.inplace import zeros

LARGE = 3 << 20
"""Elements of an array for which large pages are asked."""


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0)))
def test_values_written_in_place_are_sent_as_any_others(values):
    made = arrays.blank(values.shape)
    assert not made.any()
    made[...] = values
    (array,) = arrays.to_record({"w": made}, keep_input=False).values()
    assert array.data == Array(values).data


def test_values_written_in_place_are_handed_over_without_a_copy():
    source = {"w": arrays.blank((LARGE,))}
    where = source["w"].ctypes.data
    (array,) = arrays.to_record(source, keep_input=False).values()
    assert arrays.view(array).ctypes.data == where


def test_a_record_never_changes_with_an_array_that_somebody_kept():
    source = {"w": arrays.blank((LARGE,))}
    kept = source["w"][1:]
    (array,) = arrays.to_record(source, keep_input=False).values()
    kept[:] = 7
    assert not arrays.view(array).any()


def test_results_and_slices_of_such_values_are_sent_by_their_own_values():
    made = arrays.blank((4,))
    made[:] = range(4)
    record = arrays.to_record({"half": made[2:], "twice": made * np.float32(2)}, keep_input=False)
    assert [arrays.view(array).tolist() for array in record.values()] == [[2, 3], [0, 2, 4, 6]]


def test_a_head_stands_before_the_values():
    values = zeros(b"head", (2,), np.dtype("u1"))
    values[:] = 65, 66
    buffer = values.buffer
    del values
    assert buffer.getvalue() == b"headAB"
