"""Ways in that nobody calls: the clock."""
