"""The rules: pure and synchronous, without a library but msgspec for values. Time, randomness and ids are parameters."""
