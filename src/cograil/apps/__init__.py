"""Apps: businesses built on the engine. Each calls verbs and knows nothing of the others."""
