"""The landing record: what a receiver of pushes writes, as data, and what is wrong with a record."""
