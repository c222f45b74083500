"""How fast the queue is, beside its peers: `python -m bench`; see bench/README.md."""
