"""Who is calling: API keys, client addresses and allowed hosts."""
