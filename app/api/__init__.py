"""The room of HTTP: decode, call the verb, encode."""
