"""Companies: what three public registers say of a French company, asked for by its SIREN or SIRET.

`words` has the names; `identifiers`, `mapping`, `merging` and `verdict` decide without touching anything;
`calling` and `sources` ask the registers; `enriching` moves the state of a company, in the transaction of its
caller; `handlers` are the nodes of the workflow; `routes` is the door.
"""
