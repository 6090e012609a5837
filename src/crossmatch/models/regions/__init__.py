"""Region features of images, computed or read from files."""
