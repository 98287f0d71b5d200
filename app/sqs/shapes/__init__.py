"""The structs of requests and answers, by family of actions. Their names and members are those of the SQS API reference."""
