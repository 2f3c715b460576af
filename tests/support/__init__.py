"""What tests of several folders share: an engine in this process, clients, proxies, receivers, generated input.

A helper that only one folder needs stays in that folder. Nothing here is collected as a test.
"""
