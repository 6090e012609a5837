"""Who works on which HIT: people, claims, submissions, review."""
