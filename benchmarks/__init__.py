"""What Peeklock costs, beside references measured in the same run."""
