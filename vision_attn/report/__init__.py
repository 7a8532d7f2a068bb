"""Stored results as figures, tables, sentences and one page."""
