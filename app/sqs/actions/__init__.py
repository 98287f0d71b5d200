"""The endpoints of the actions, by family."""
