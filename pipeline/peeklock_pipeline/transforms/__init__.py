"""Queries: pure functions from DataFrame to DataFrame."""
