"""Laundry: an example app of cograil. It has one of everything and imports nothing but `cograil.plugins`."""
