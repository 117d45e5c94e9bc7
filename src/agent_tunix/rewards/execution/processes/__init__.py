"""Worker processes: how they start and how they are reached."""
