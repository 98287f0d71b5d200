"""The query protocol, which older AWS SDKs speak: a request is a form, an answer is XML. It has the structs of the JSON protocol."""
