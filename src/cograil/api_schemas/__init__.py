"""The responses of the API as TypedDicts.

The OpenAPI document is generated from them, and the client uses them as its types.
"""
