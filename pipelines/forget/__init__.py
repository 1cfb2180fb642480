"""Erasure: removes a client instance or a principal from every file of a lake."""
