"""The JSON of requests and responses. It is a public contract: fields are added and never removed."""
