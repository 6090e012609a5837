"""The trainable retrieval systems of the papers, one file per family. `crossmatch.train` trains them, by recipes."""
