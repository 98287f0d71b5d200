"""Receives: messages are locked for a receiver, also through a filter, or after a wait."""
