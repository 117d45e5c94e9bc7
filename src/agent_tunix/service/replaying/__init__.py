"""Comparison of a changed source of an uploaded function with the saved one, by text and by scores.

The changed source is checked like an upload, and its code runs only in isolated workers.
"""
