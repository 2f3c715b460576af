"""The nouns: workflows, jobs, nodes, outcomes, happenings, changes.

Frozen values without I/O, clock or randomness. Everybody may import them; they import
nothing of ours but `errors`.
"""
