"""Worker processes: their start and their connections."""
