"""Cache soundness: what the cache says it holds, it holds, whatever happens and however long. Start at `proof.py`."""
