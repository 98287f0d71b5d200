"""The command `peeklock-worker`: runs the worker of a module in one process or several."""
