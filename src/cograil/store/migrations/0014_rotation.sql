-- Secrets of subscriptions that were replaced and still sign for a while.
-- compatible: yes
--
-- Each is {"secret": text, "until": timestamp}. What signs is looked up when a delivery is sent, so that one
-- that waits for days is not sent with a secret that its receiver has forgotten. A relay of an older program
-- signs with the secret that the delivery brought along.

alter table cograil.subscriptions add column old_secrets jsonb not null default '[]';
