"""The one importable package.

In the repository its parts are links to the top folders; a wheel contains the files themselves.
"""
