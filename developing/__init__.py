"""What `dev.py` is made of. Until `.venv` exists, nothing but the standard library is there to import."""
