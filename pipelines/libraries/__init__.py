"""What is known about client libraries and their versions (`sql/versions/`), and the views made of it."""
