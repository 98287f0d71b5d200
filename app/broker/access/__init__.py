"""API keys, and the sessions of people who have signed in with one."""
