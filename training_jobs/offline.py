"""Imported before transformers: a trainer reads local folders alone, asks no hub, and tells nobody what it trains.

These are switches of other libraries, which read them when they are first imported.
"""

import os

os.environ.update({"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"})
