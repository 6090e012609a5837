"""The embedded world: scenes, captions, pictures, and the truth about every pair."""
