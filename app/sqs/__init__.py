"""The interface of Amazon SQS: decodes requests of AWS SDKs, authorizes them, calls the verbs, and encodes their results."""
