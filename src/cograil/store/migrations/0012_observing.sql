-- The order in which events can be followed over all jobs.
-- compatible: yes
--
-- Events are numbered within their job. Who follows all jobs must not pass over an event whose transaction
-- commits late, however late that is: so each says which transaction wrote it, and whoever looks keeps the
-- snapshot he looked with. What that snapshot did not see is new. Events grow at the end, and so do the
-- numbers of transactions: an index that keeps the least and the greatest of each run of pages costs an
-- insert next to nothing. Older events have no number, and are not followed.

alter table cograil.events add column xid bigint;
alter table cograil.events alter column xid set default pg_current_xact_id()::text::bigint;
create index events_xid on cograil.events using brin (xid) with (pages_per_range = 32, autosummarize = on);
