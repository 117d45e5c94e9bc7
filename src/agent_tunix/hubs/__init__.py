"""Downloads from and uploads to hubs: Hugging Face, Kaggle, Google Cloud Storage.

Each module uses one hub, through the hub's own library. It turns the library's exceptions into errors that state what
was required, what arrived and what to do. Importing a module does not load its library.
"""
