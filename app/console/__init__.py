"""The console: pages for people who operate a server, at `/console`. They use the verbs that the HTTP API uses."""
