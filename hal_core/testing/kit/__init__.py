"""The conformance kit: abilities a test may skip on, `hal check`, reports."""
