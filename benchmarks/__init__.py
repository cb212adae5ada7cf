"""Timed comparisons with other libraries, run by hand and never part of the tests."""
