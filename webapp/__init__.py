"""The Django application: the only owner of the database."""
