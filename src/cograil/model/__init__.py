"""The nouns of the engine: workflows, jobs, nodes, outcomes, inputs and changes.

The classes are values without I/O, clock or randomness. Every package may import them. Modules here
import nothing from cograil but `errors`, `clock` and `strict_json`. Types of the HTTP API live in
`api_schemas/`, SQL in `store/`.
"""
