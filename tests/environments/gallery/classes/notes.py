"""State that must be released: a file."""

import os
import tempfile


class Notes:
    """Keep notes in a file."""

    opened = 0

    def reset(self, seed: int, title: str = "notes"):
        Notes.opened += 1
        handle, self.path = tempfile.mkstemp()
        os.close(handle)
        return f"Your {title} are empty. Ticket {seed}."

    def write(self, lines: list[str]) -> str:
        """Append lines.

        Args:
            lines: The lines.
        """
        with open(self.path, "a") as file:
            file.writelines(f"{line}\n" for line in lines)
        return f"{len(lines)} lines"

    def read(self) -> str:
        """Read all notes."""
        with open(self.path) as file:
            return file.read()

    def close(self):
        os.unlink(self.path)
        Notes.opened -= 1
