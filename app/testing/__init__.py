"""A server in memory for the tests of applications, on a clock that a test moves. `pytest_peeklock` starts it."""
