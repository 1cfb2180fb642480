"""Pure functions on Arrow and NumPy: decompression, OTLP decoding, delta conversion. No Spark here."""
