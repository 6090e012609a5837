"""The file formats that benchmarks and collections come in, each read by one small file."""
