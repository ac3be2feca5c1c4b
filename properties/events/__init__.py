"""Events that runs have to reach, by theme: a run that never met one shows nothing about what follows from it."""
