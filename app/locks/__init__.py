"""The room of Redis: lock records that refine what SQL decides, and wake-ups across processes."""
