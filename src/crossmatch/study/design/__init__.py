"""What a study asks: its declaration, items, images, and the creation of a new study."""
