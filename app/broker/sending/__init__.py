"""Sends: a message is stored in the last queue of its chain, held in memory, or sent for an answer."""
