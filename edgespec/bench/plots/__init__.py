"""A result as pictures: SVG without any library."""
