"""The file formats of benchmarks and collections, one reader per file."""
