"""Workers, which receive the messages of queues and call a handler with each."""
