"""The table of `docs/models.md`: each family against transformers, in float32.

`python -m tests.parity.table` measures and prints it, with status 1 where a family misses the bar; `--write` puts it
into the page. It needs the optional group `parity`: pip install -e '.[parity]'.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.parity.families import FAMILIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- parity: begin -->", "<!-- parity: end -->"
MAX_ERROR = 1e-4
_SAME = "the same"
COLUMNS = (
    "Family",
    "Logit error",
    "Greedy tokens",
    "Exported: logit error",
    "Exported: greedy tokens",
    "Adapter in PEFT",
)


class Row(NamedTuple):
    """A family: largest differences of logits, and whether greedy completions are the same, as `COLUMNS` has them."""

    family: str
    error: float
    greedy: bool
    exported_error: float
    exported_greedy: bool
    adapter_error: float

    @property
    def holds(self) -> bool:
        """Whether all of it is within the bar."""
        errors = (self.error, self.exported_error, self.adapter_error)
        return max(errors) < MAX_ERROR and self.greedy and self.exported_greedy


def measure(family: str, directory: Path) -> Row:
    """Make a checkpoint of a family in an empty directory and compare everything with it."""
    import peft
    from tests.parity import comparing
    from tests.parity.checkpoints import load_checkpoint, make_checkpoint

    from agent_tunix.policy.files.export import write_adapter, write_merged

    source, merged, adapter = (directory / name for name in ("source", "merged", "adapter"))
    make_checkpoint(family, source)
    ours, theirs = comparing.load_ours(source), load_checkpoint(source)
    policy = comparing.with_adapter(source)
    merged.mkdir()
    adapter.mkdir()
    write_merged(policy, source, merged, comparing.ALPHA)
    write_adapter(policy, source, adapter, comparing.ALPHA, str(source))
    exported = load_checkpoint(merged)
    in_peft = peft.PeftModel.from_pretrained(load_checkpoint(source), adapter)
    return Row(
        family,
        comparing.logit_error(ours, theirs, through_cache=True),
        comparing.greedy_agrees(ours, theirs),
        comparing.logit_error(policy, exported, through_cache=False),
        comparing.greedy_agrees(policy, exported),
        comparing.logit_error(policy, in_peft, through_cache=False),
    )


def to_markdown(rows: list[Row]) -> str:
    """The table."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|--:|---|--:|---|--:|"]
    for row in rows:
        greedy, exported = (_SAME if same else "**differ**" for same in (row.greedy, row.exported_greedy))
        errors = [f"{error:.0e}" for error in (row.error, row.exported_error, row.adapter_error)]
        lines.append(f"| {row.family} | {errors[0]} | {greedy} | {errors[1]} | {exported} | {errors[2]} |")
    return "\n".join(lines)


def from_markdown(page: str) -> list[Row]:
    """The rows of the table in a page."""
    lines = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        Row(family, float(error), tokens == _SAME, float(exported), exported_tokens == _SAME, float(adapter))
        for family, error, tokens, exported, exported_tokens, adapter in cells
    ]


def main() -> int:
    """Measure every family; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    rows = []
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as directory:
            rows.append(measure(family, Path(directory)))
        print(to_markdown(rows).splitlines()[-1], flush=True)
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{to_markdown(rows)}\n{END}{after}")
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
