"""Loops, batches, budgets, clocks and wait queues. Nothing here knows what a message is."""
