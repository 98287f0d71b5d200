"""Questions: pure functions from DataFrame to DataFrame."""
