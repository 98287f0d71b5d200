"""A server as its operating system and its clients see it: what must hold before, the port, and each connection."""
