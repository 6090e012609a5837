"""The table of data sets: files, hashes, sources, licences and expected counts."""
