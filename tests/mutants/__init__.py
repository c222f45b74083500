"""Seeded faults in the scripts, and a run that counts how many of them the tests notice."""
