"""Reading and writing files: atomic writes, downloads, paths, declarations in TOML, progress."""
