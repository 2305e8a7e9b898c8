"""A result as text: Markdown, JSON, CSV."""
