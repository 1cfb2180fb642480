"""Does a client library obey KIP-714? A receiver that answers by a script, and a card of what the client did."""
