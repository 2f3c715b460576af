-- Captures that are neither sealed nor failed are found without a look at all the others.
-- compatible: yes
--
-- Workers look for those whose job has ended or is gone: nobody else would ever end them.

create index capture_events_open on vault_secure.capture_events (id) where state in ('UPLOADED', 'SEALING');
