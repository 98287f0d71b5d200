"""The cost of Peeklock, compared with references measured in the same run."""
