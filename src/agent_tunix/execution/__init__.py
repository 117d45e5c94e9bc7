"""Execution of untrusted code: isolation of processes, and programs that run in isolation.

isolation/   restrictions that a process imposes on itself before it runs such code
sandbox/     programs written by a model, and their tests
"""
