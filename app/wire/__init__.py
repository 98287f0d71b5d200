"""The promise: what requests and answers look like in JSON. It only ever grows."""
