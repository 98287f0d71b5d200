"""Requests and responses: everything between the server and an endpoint."""
