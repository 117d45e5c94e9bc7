"""Tool `python`: programs of the model, in the sandbox of the reward `code_tests`."""

from agent_tunix.execution.isolation import require_isolation
from agent_tunix.execution.sandbox import run_program


class PythonSandbox:
    """Run Python programs that can do nothing but compute.

    Args:
        timeout_s: Wall time of a program.
        memory_mb: Memory of a program, including the interpreter.
    """

    # Programs run in processes of their own.
    waits = True

    def __init__(self, timeout_s: float = 5.0, memory_mb: int = 256) -> None:
        require_isolation("the code of the tool python")
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb

    def python(self, code: str) -> str:
        """Run a Python program and return what it prints. Nothing is kept for the next program.

        Args:
            code: The program. It has the standard library, but no files, network or other processes.
        """
        run = run_program(code, timeout_s=self._timeout_s, memory_mb=self._memory_mb)
        printed = run.output.rstrip("\n")
        if run.problem:  # before the output, because a limit may cut the end
            return f"Error: {run.problem.removesuffix(':')}" + (f"\nIt printed:\n{printed}" if printed else "")
        return printed or "The program printed nothing; print what you want to see."
