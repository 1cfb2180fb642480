"""What agents may ask of a lake: answers with limits, and nothing but queries."""
