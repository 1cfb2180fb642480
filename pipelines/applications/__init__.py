"""Client aliases: which application a client belongs to, and who owns it."""
