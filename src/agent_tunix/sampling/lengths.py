"""The few lengths that arrays are cut to, so that few programs serve all lengths."""

_NUM_BUCKETS = 4
# Fewer slots cost less to compute than another program takes to compile.
_SMALLEST_BUCKET = 32


def bucket(length: int, limit: int) -> int:
    """Return the smallest of a few lengths that holds `length`, at most `limit`."""
    step = max(_SMALLEST_BUCKET, -(-limit // _NUM_BUCKETS))
    return min(limit, -(-length // step) * step)
