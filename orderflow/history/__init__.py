"""Histories as files: export them from Temporal, redact them for others' eyes, replay them on today's code."""
