"""The life of client instances: first push, silence, termination, return, rebootstrap."""
