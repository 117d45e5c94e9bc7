"""Notebooks that run from top to bottom in a real kernel."""

from pathlib import Path
from typing import Any

import nbclient
import nbformat

Cells = list[Any]


def execute(cells: Cells, directory: Path) -> Cells:
    """Run cells in a kernel that starts in a directory, and return them with their outputs.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    return list(notebook.cells)


def code(text: str) -> Any:
    """Return a cell of code."""
    return nbformat.v4.new_code_cell(text.strip())  # type: ignore[no-untyped-call]


def result(cell: Any, kind: str = "text/plain") -> str:
    """Return what a cell's last expression shows, in a MIME type; "" if it shows nothing."""
    results = [output for output in cell.outputs if output.output_type == "execute_result"]
    return str(results[-1].data.get(kind, "")) if results else ""


def displayed(cell: Any, kind: str = "text/html") -> list[str]:
    """Return what a cell has displayed besides its last expression."""
    return [str(output.data.get(kind, "")) for output in cell.outputs if output.output_type == "display_data"]
