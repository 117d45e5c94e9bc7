"""Lengths that arrays are rounded up to, so that few compiled programs serve all lengths."""

_NUM_BUCKETS = 4
# Computing up to this many unused slots costs less than compiling another program.
_SMALLEST_BUCKET = 32


def bucket(length: int, limit: int) -> int:
    """Return the smallest of a few lengths that holds `length`, at most `limit`."""
    step = max(_SMALLEST_BUCKET, -(-limit // _NUM_BUCKETS))
    return min(limit, -(-length // step) * step)
