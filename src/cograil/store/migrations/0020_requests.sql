-- Which jobs were made of requests from outside: only those are shown to who asks by the id of a request.
-- compatible: yes
--
-- A correlation id is whatever its caller says. What a server of an older program makes is known by the record of
-- its request, for as long as that is kept.

alter table cograil.jobs add column is_request boolean not null default false;
