"""Accuracy, pass@k and their intervals, of a run or a checkpoint."""
