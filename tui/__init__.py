"""The Textual app. Not there yet: `edgespec chat --plain` is the chat for now."""
