"""Checks of a cluster, a lake and this machine: what works, and what to do where something doesn't."""
