"""Whoever proposes the next tokens; one idea a file."""
