"""Sends and settlements that take effect together, in one request or in a transaction of several."""
