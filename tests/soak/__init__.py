"""Short jobs on the real parts while these are killed, again and again: python -m tests.soak (docs/reliability.md)."""
