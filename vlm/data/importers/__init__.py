"""Readers of the formats in which people have their own pictures and questions."""
