"""Tools for tests: the conformance kit, a backend to copy, and files for a new distribution."""
