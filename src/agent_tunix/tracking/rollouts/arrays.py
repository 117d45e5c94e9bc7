"""Lists as Arrow arrays, without pandas.

`pyarrow.array` imports pandas wherever that is installed, to ask whether what it was given is of pandas: a third of a
second of every run, in which no other thread gets on. Here an array is put together from its buffers, as Arrow's format
lays them out.
"""

import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def make_array(values: Sequence[Any] | np.ndarray, kind: "pa.DataType") -> "pa.Array":
    """The array of some values, each of which may be None.

    Args:
        values: Strings, truth values or numbers, as the type asks.
        kind: string, bool, int32, float32 or float64.

    Raises:
        AttributeError, TypeError: A value is of another type.
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
        # Unlike NumPy it refuses what its type cannot hold.
        numbers = array({"bool": "b", "int32": "i", "float": "f", "double": "d"}[str(kind)], present)
        buffers = [_bits(np.frombuffer(numbers, np.int8)) if pa.types.is_boolean(kind) else pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], num_missing)


def _bits(truths: np.ndarray) -> "pa.Buffer":
    import pyarrow as pa

    return pa.py_buffer(np.packbits(truths, bitorder="little"))
