"""Messages about changes of findings: which sink is sent which, and what it was sent already."""
