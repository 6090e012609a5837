"""Hard negative captions: written by rules, by a language model, or by edits of diorama scenes."""
