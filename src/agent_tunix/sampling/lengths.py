"""Lengths that arrays are rounded up to, so that few compiled programs serve all lengths."""

_NUM_BUCKETS = 4
# Computing up to this many unused slots costs less than compiling another program.
_SMALLEST_BUCKET = 32


def bucket(length: int, limit: int) -> int:
    """Return the smallest of a few lengths that holds `length`, at most `limit`."""
    step = max(_SMALLEST_BUCKET, -(-limit // _NUM_BUCKETS))
    return min(limit, -(-length // step) * step)


def bucket_of_any(length: int, limit: int) -> int:
    """Return the smallest power of two, or one and a half times a power of two, that holds `length`; at most `limit`.

    It suits lengths whose limit says little about them, such as a model's context.
    """
    size = _SMALLEST_BUCKET
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return min(limit, size)
