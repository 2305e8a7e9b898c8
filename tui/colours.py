"""Styles of text that are named in several places."""

from __future__ import annotations

# As $text-muted, which as a style of text (not in CSS) comes out as plain black or white.
MUTED = "$foreground 70%"
