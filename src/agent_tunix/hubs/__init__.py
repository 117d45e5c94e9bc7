"""What lies elsewhere, brought to this machine or pushed from it: Hugging Face, Kaggle, Google Cloud Storage.

Each file speaks to one hub, through the library that its makers keep, and turns what that library raises into an error
that says what was required, what arrived and what to do. Importing any of them loads no such library.
"""
