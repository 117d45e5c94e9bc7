"""Arrow arrays from their buffers: what `pyarrow.array` makes of the same values, or a refusal."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.tracking.rollouts.arrays import make_array

INT32 = st.integers(-(2**31), 2**31 - 1)
VALUES = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.bool_(): st.booleans(),
    pa.int32(): INT32,
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_it_is_what_pyarrow_makes_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind] | st.none(), max_size=20))
    made = make_array(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


def test_not_a_number_stays_one_and_is_no_null() -> None:
    made = make_array(np.array([np.nan, -0.0], np.float32), pa.float32())
    assert made.null_count == 0
    np.testing.assert_array_equal(made.to_numpy(), np.array([np.nan, -0.0], np.float32))
    assert np.signbit(made.to_numpy()[1])


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([1.5], pa.int32(), TypeError),
        (["1"], pa.int32(), TypeError),
        ([2**31], pa.int32(), OverflowError),
        (["1"], pa.float64(), TypeError),
        ([1.0], pa.bool_(), TypeError),
        ([1], pa.string(), AttributeError),
        (["\ud800"], pa.string(), UnicodeEncodeError),
    ],
)
def test_what_the_type_cannot_hold_is_refused(values: list[Any], kind: pa.DataType, error: type[Exception]) -> None:
    with pytest.raises(error):
        make_array(values, kind)
