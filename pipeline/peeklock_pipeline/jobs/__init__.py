"""The jobs, one command each: a job opens its inputs, queries them, and writes the result."""
