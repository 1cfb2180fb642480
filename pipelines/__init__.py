"""DataFrame to DataFrame: sources, tables, the stateful operator and its sink."""
