"""Authentication of requests: API keys, client addresses and allowed hosts."""
