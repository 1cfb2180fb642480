"""What the commands share: how they start and end, locks, signals, logs and what runs in their background."""
