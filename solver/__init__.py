"""Engines that decide obligations about policies: symbolic evaluation and proofs."""
