"""The front end of `@hal.kernel`: a typed subset of Python, lowered from the syntax tree to IR."""
