"""The decoder: layers, attention, projections."""
