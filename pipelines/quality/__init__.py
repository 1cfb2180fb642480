"""Data quality rules, checked in each batch and, on stored rows, by a command."""
