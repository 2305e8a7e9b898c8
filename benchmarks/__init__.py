"""Measurements behind the numbers in the documentation; each is run as a module."""
