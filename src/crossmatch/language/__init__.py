"""Words, parts of speech, WordNet and alterations of captions: offline, and the same on every machine."""
