"""Publishing a benchmark: data sheet, Croissant metadata, parquet files, provenance."""
