"""Metrics as pure functions over arrays, and the table that declares them."""
