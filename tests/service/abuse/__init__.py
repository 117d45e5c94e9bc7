"""Attacks on a real server, each with the answer that answers.md gives for it.

A case's name is the first cell of its line in the table, and what it may see the second: the page is what is tested.
`scripts/proofs.py "service: abuse"` makes all of them; the tests make the quick ones.
"""
