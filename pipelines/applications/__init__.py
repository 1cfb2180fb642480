"""Client aliases: which application a client belongs to, who owns it, and what its use of a cluster costs."""
