"""Agreement of caption metrics with human ratings and preferences."""
