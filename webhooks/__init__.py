"""Webhooks: the relay turns events into delivery jobs, the deliverer posts them, signed and at least once."""
