"""The pure-Python state model of a hybrid prefix cache. Knows no engine; needs only attrs and the standard library."""
