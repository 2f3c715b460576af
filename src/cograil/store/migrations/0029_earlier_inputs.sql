-- What a node was given before, where a later attempt or a question asked again was given something else.
-- compatible: yes
--
-- A task keeps its input over all attempts; an approval and a subworkflow render theirs each time they begin. Each
-- entry is {"until", "input"}: the input that held up to the event of that number.

alter table cograil.nodes add column earlier_inputs json[];
