"""`edgespec serve`: the HTTP API. A page of one origin, or a host name, is trusted by name only."""
