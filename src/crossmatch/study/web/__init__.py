"""The pages and the interface that they use. Needs the extra `study`."""
