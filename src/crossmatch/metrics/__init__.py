"""Pure functions over arrays, and the table that declares them."""
