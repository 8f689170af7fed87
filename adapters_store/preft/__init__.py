"""The maths of prefill-only fine-tuning: which positions, and what is added there."""
