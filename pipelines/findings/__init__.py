"""Findings: their rules (`sql/findings/`), the views made of them, and what people say about them."""
