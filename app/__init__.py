"""Peeklock: a message broker in plain HTTP."""

__version__ = "0.2.0"
