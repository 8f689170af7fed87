"""Stock vLLM, taught prefill-only adapters: a plugin, and how to launch the server with it."""
