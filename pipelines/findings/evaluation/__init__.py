"""Evaluates view `findings` hour by hour, and writes table `finding_changes`."""
