"""The machine and its files: paths, models.toml, downloads."""
