"""Compiled loops: the decorator, the cache of machine code, numbering and sharding of 64-bit ids."""
