"""The implementation of `dev.py`. It imports the standard library only, because it runs before `.venv` exists."""
