"""The machinery: loops, batches, clocks and waiting, none of which knows what a message is."""
