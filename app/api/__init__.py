"""The HTTP interface: decode a request, call the verb of the broker, encode the result."""
