"""Filters of messages, and the bytes that requests with a filter may hold."""
