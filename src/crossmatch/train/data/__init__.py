"""Training data: images or region features, captions, hard negatives, batches."""
