"""One file for every family of endpoints."""
