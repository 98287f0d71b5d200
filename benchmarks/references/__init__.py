"""What Peeklock is measured beside, each an application under the same uvicorn."""
