"""Execution of code written by others: the isolation kernel, and programs that run under it.

isolation/   what a process gives up for good before it runs such code
sandbox/     programs written by a model, and their tests
"""
