"""The engine of Spark's own: state in Spark's state store, rows by Spark's Delta writer."""
