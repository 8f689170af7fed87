"""The dashboard's pages, one module a subject."""
