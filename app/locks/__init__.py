"""The Redis backend: lock records that refine what SQL decides, and wake-ups across processes."""
