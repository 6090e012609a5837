"""crossmatch tells you what an image-text model really matched."""

__version__ = "0.1.0"
