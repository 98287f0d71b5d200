"""The room of background work: one pass per file; a pass returns how long to rest, None for the usual."""
