"""The routes of the API, a module for each resource.

A route reads its parameters, calls a verb or a query in one transaction and returns an API schema.
"""
