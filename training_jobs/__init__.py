"""Celery GPU workers: conversations in, adapter out. No database and no storage credentials live here."""
