-- Who is told next: of each origin and tenant the first, so that none is walked for the others.
-- compatible: yes
--
-- An older program finds what is due of an origin by the same index, and sorts it.

drop index cograil.deliveries_due;
create index deliveries_due on cograil.deliveries (origin, tenant_id, not_before) where state = 'pending';
