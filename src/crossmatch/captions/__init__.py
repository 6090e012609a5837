"""Caption metrics against reference captions, equal to coco-caption's, without Java."""
