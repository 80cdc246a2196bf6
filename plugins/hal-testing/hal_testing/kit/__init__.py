"""Parts of the conformance kit: reasons to skip a test, `hal check`, and reports."""
