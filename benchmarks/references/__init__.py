"""The references with which Peeklock is compared, each an application under the same uvicorn."""
