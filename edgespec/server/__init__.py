"""`edgespec serve`: the HTTP API in front of an engine."""
