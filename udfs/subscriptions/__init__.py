"""Client metrics subscriptions (KIP-714): who matches which, through time."""
