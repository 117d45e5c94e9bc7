"""Construction of Arrow arrays from lists without pandas.

`pyarrow.array` imports an installed pandas to check the type of its input. That takes a third of a second of every
run, during which no other thread runs. Here arrays are built from buffers in Arrow's memory layout.
"""

import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def make_array(values: Sequence[Any] | np.ndarray, kind: "pa.DataType") -> "pa.Array":
    """Return an array of values, each of which may be None.

    `values`: Strings, bools or numbers, matching the type.
    `kind`: string, bool, int32, float32 or float64.

    Raises:
        AttributeError, TypeError: A value has another type.
        OverflowError: A number is out of the type's range.
        UnicodeEncodeError: A string is not valid Unicode.
    """
    import pyarrow as pa

    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    num_missing = int(missing.sum())
    validity = _bits(~missing) if num_missing else None
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        ends = array("i", [0, *itertools.accumulate(map(len, texts))])
        buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    else:
        present = [0 if value is None else value for value in values] if num_missing else values
        # Unlike NumPy, `array` refuses numbers that its type cannot hold.
        numbers = array({"bool": "b", "int32": "i", "float": "f", "double": "d"}[str(kind)], present)
        buffers = [_bits(np.frombuffer(numbers, np.int8)) if pa.types.is_boolean(kind) else pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], num_missing)


def _bits(truths: np.ndarray) -> "pa.Buffer":
    import pyarrow as pa

    return pa.py_buffer(np.packbits(truths, bitorder="little"))
