"""Flower's ClientApp: message -> worker -> reply."""
