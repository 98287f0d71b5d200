"""Workers: handlers of queues, called with messages as they come."""
