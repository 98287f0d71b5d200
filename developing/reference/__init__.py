"""Writes docs/reference from the code, the OpenAPI document and the words beside these modules."""
