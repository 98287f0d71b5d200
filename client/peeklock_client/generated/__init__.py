"""The typed layer that `python3 dev.py openapi` generates from the OpenAPI document."""
