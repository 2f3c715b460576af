"""Companies: data of three public registers about a French company, by SIREN or SIRET.

`constants` has the names of the contract; `identifiers`, `field_map`, `legal_forms`, `register_codes`, `merge` and
`run_outcome` are pure functions; `source_http` and `sources` query the registers; `enrichment` changes the state of a
company in the transaction of its caller, `enrichment_request` records a request; `queries`, `company_search` and
`serializers` read and write rows; `workflow` and `handlers` are the pipeline; `sweeper` ends lost runs;
`routes`, `pages` and `cli` are the interfaces.
"""
