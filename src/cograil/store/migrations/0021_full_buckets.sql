-- When a bucket is full again: from then on it says no more than a new one, and is removed.
-- compatible: yes
--
-- No index: it would be written by every taker. Rows of older programs have no such moment, and stay until the
-- next one takes.

alter table cograil.buckets add column full_at timestamptz;
