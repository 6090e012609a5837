"""TIGEr: caption quality by visual grounding."""
