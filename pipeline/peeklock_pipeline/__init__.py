"""Keeps the history of every message in a lake, and queries it with Spark."""
