"""The OpenAPI document, made from the declarations of the operations."""
