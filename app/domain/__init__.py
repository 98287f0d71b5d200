"""The rules: pure, synchronous, standard library only; time, randomness and ids are parameters."""
