-- A callback whose receiver said that it is gone is told nothing more.
-- compatible: yes
--
-- A relay of an older program goes on telling it, and hears 410 each time.

alter table cograil.jobs add column callback_ended_at timestamptz;
