"""Push: a worker whose handler calls an HTTP endpoint, so that a consumer needs no library of Peeklock."""
