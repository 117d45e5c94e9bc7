"""Runs that the tests look into."""

from pathlib import Path

import pyarrow as pa

from agent_tunix.tracking.rollouts.files import FileInProgress
from agent_tunix.tracking.rollouts.rows import to_table
from tests.tracking.rollouts.support import make_step


def write_many(directory: Path, num_steps: int, groups: int = 50, copies: int = 5, steps_per_file: int = 20) -> int:
    """Rollouts of many steps, quickly: the same rows, with another step and further groups.

    Returns how many rows a step has.
    """
    table = to_table(make_step(1, groups))
    parts = []
    for copy in range(copies):
        moved = pa.compute.add(table["group"], pa.scalar(copy * groups, pa.int32()))
        parts.append(table.set_column(1, table.schema.field("group"), moved))
    whole = pa.concat_tables(parts).combine_chunks()
    field = whole.schema.field("step")
    for first in range(1, num_steps + 1, steps_per_file):
        file = FileInProgress(directory, whole.schema, first)
        for step in range(first, min(first + steps_per_file, num_steps + 1)):
            file.add(step, whole.set_column(0, field, pa.array([step] * whole.num_rows, pa.int32())))
        file.finish()
    return int(whole.num_rows)
