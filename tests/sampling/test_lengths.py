"""Lengths that arrays are rounded up to."""

from agent_tunix.sampling.lengths import bucket_of_any


def test_few_lengths_serve_a_long_context() -> None:
    lengths = range(1, 5001)
    found = [bucket_of_any(length, 5000) for length in lengths]
    assert len(set(found)) == 16
    assert all(length <= size <= max(32, 1.5 * length) for length, size in zip(lengths, found, strict=True))
    assert bucket_of_any(290, 300) == 300
