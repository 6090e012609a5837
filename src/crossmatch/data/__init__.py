"""The concepts that everything else works on: collections, judgements, trials, ratings, scores, results."""
