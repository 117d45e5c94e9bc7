"""Read-only views of run directories, for the API and the pages. Nothing here writes or keeps files open."""
