"""The languages of the C family: each has its row of data and its renderer in its own file."""
