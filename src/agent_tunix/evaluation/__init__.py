"""Accuracy and pass@k of a run or a checkpoint, with confidence intervals."""
