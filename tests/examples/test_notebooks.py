"""The notebooks of `examples/notebooks` run from top to bottom with the tiny model."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.kernels import code, execute
from tests.small_run import SMALL_RUN

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
NAMES = sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb"))
# Values of the cell with the tag `parameters`; for all notebooks the overrides of a small run.
PARAMETERS: dict[str, dict[str, Any]] = {"colab_gpu": {"OUTPUT": "out"}, "kaggle_tpu_gemma": {"OUTPUT": "out"}}


def read_cells(name: str) -> list[Any]:
    notebook: Any = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    return list(notebook.cells)


def tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", ()))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_without_outputs_and_has_parameters(name: str) -> None:
    cells = [cell for cell in read_cells(name) if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    assert [tags(cell) for cell in cells if tags(cell)] == [["install"], ["parameters"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    values = {"OVERRIDES": list(SMALL_RUN), **PARAMETERS.get(name, {})}
    cells = []
    for cell in read_cells(name):
        if "install" not in tags(cell):
            cells.append(cell)
        if "parameters" in tags(cell):
            cells.append(code("\n".join(f"{key} = {value!r}" for key, value in values.items())))
    execute(cells, tmp_path)
    assert list(tmp_path.rglob("metrics.jsonl"))
