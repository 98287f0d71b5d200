"""What administrators and background loops do with queues and their messages."""
