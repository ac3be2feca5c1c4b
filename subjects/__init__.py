"""The real thing under test: vLLM's own scheduler, in an interpreter of its own; `driver.py` runs there, the rest here.

vLLM is never imported into hitbound's interpreter.
"""
