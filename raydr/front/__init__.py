"""The front door: command line, Python API, terminal."""
