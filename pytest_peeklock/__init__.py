"""pytest fixtures for programs that use Peeklock: `peeklock_server`, and `peeklock` with fresh data for each test."""

from pytest_peeklock.server import Peeklock, ServerFailed, ServerProcess

__all__ = ["Peeklock", "ServerFailed", "ServerProcess"]
