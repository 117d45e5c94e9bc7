"""Read-only views of run directories, for the API and the pages: nothing here writes, and nothing is held open."""
