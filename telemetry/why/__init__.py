"""One request's whole story: which request a text means, what was seen of it, what did not come, and why."""
