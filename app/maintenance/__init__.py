"""Background work: one pass per file. A pass returns the seconds until the next one, None for the usual interval."""
