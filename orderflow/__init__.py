"""Durable order workflows on Temporal: at-least-once delivery, each effect applied once."""

__version__ = "0.1.0"
