"""The C family: one engine writes a kernel, a row of data says how a language spells it."""
