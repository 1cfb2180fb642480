"""Landing records of any receiver: their published schemas, and records of files and topics to be checked."""
