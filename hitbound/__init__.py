"""The command line: runs the engines, judges what they found, reports it."""

__version__ = "0.1.0"
