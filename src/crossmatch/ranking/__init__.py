"""From scores to exact rank counts under ties, in blocks and without sorting whole galleries."""
