"""The flags of each command: command `x-y` has class `XYSettings` in `x_y`. They import quickly."""
