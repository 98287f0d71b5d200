"""What every engine shares: rows, columns, and the statements that run on each engine."""
