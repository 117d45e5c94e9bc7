"""Worker processes for users' code: their start, limits, isolation, connections and end."""
