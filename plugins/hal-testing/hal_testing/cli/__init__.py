"""Commands of `hal` for authors of backends: check and new."""
