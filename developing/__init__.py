"""The implementation of `dev.py`. It imports the standard library only, because it runs before `.venv` exists.

`reference` and `site_hooks` run in `.venv`: the reference of the documentation, and the hooks of its site.
"""
