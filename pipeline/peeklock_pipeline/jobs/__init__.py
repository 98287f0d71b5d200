"""Jobs: each one command, which opens what it needs, asks, and writes."""
