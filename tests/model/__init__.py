"""The queue once more, in plain Python without Redis, and a machine that compares the two after every call."""
