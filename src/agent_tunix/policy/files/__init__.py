"""The files of a model: location, content, export."""
