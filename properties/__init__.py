"""The catalogue of invariants, the strategies that generate runs, and the state machine over the model."""
