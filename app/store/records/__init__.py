"""What all engines share: rows and columns, and the statements that run on each."""
