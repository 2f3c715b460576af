-- name: claim_deliveries
-- Claims due deliveries, a few per origin, so that the backlog of a slow origin is never scanned for the others, with
-- the tenants in turn. `room` and `fresh` list the origins and tenants that may not have the usual number; unproven
-- origins share one limit. Events of a job go to a destination one at a time, in order; a failed one holds the later
-- ones back for a while only. The claim expires by itself: after a crash another try sends the same id and the same
-- bytes. A delivery to a proven origin brings some that follow it, which the same relay sends in order, so that a job
-- with many events does not need one claim for each. No other relay can take those: the one before them never failed
-- and is held by this relay. `offset 0` keeps the subquery correlated by job; a join planned on small tables compares
-- all rows with all rows. A delivery to a subscription is signed with the current secrets of the subscription.
with recursive origins as (
  (select origin, tenant_id from cograil.deliveries where state = 'pending' order by origin, tenant_id limit 1)
  union all
  select n.origin, n.tenant_id from origins p cross join lateral (
    select d.origin, d.tenant_id from cograil.deliveries d
    where d.state = 'pending' and (d.origin, d.tenant_id) > (p.origin, p.tenant_id)
    order by d.origin, d.tenant_id limit 1) as n
), origin_room as materialized (
  select p.origin, p.tenant_id, coalesce(f.free, %(usual)s::int) as free, coalesce(f.is_proven, false) as is_proven,
         coalesce(h.held, 0) as held, coalesce(h.room, %(room)s::int) as room, coalesce(h.fresh, %(fresh)s::int) as fresh
  from origins p
  left join unnest(%(lane_origin)s::text[], %(lane_free)s::int[], %(lane_is_proven)s::boolean[]) as f(origin, free, is_proven)
    on f.origin = p.origin
  left join unnest(%(tenant_id)s::text[], %(tenant_held)s::int[], %(tenant_room)s::int[], %(tenant_fresh)s::int[])
    as h(tenant_id, held, room, fresh) on h.tenant_id = p.tenant_id
), candidates as materialized (
  select r.*, t.id, t.not_before,
         row_number() over (partition by r.origin, r.tenant_id order by t.not_before, t.id) as nth
  from origin_room r cross join lateral (
    select d.id, d.not_before from cograil.deliveries d
    where d.state = 'pending' and d.origin = r.origin and d.tenant_id = r.tenant_id and d.not_before <= now()
      and r.free > 0
      and not exists (
        select 1 from cograil.deliveries e
        where e.job_id = d.job_id and e.destination = d.destination and e.state = 'pending' and e.id <> d.id
          and (e.lease_until > now()
               or (e.seq, e.id) < (d.seq, d.id) and (e.holds_until is null or e.holds_until > now())) offset 0)
    order by d.not_before limit r.free for update of d skip locked) as t
), in_lane as (
  select *, row_number() over (partition by origin order by nth, not_before, id) as place from candidates
), in_turn as (
  select *, row_number() over (partition by tenant_id, is_proven order by not_before, id) as turn
  from in_lane where place <= free
), fair as (
  select *, row_number() over (partition by is_proven order by held + turn, not_before, id) as nr
  from in_turn where turn <= case when is_proven then room else least(room, fresh) end
), due as materialized (
  select id, is_proven from fair where is_proven or nr <= %(most_fresh)s
  order by held + turn, not_before, id limit %(limit)s
), following as materialized (
  select f.id from due u join cograil.deliveries h on h.id = u.id and u.is_proven and h.holds_until is null
  cross join lateral (
    select e.id, bool_and(e.not_before <= now() and e.holds_until is null and e.origin = h.origin
                          and (e.lease_until is null or e.lease_until <= now())) over (order by e.seq, e.id) as is_free
    from (select d.* from cograil.deliveries d
          where d.job_id = h.job_id and d.destination = h.destination and d.state = 'pending'
            and (d.seq, d.id) > (h.seq, h.id)
          order by d.seq, d.id limit %(following)s) as e) as f
  where f.is_free
), claimed as (
  update cograil.deliveries d
  set tries = d.tries + 1, fence = d.fence + 1, lease_until = now() + %(lease)s * interval '1 second',
      not_before = now() + %(lease)s * interval '1 second'
  where d.id = any(array(select id from due union all select id from following)) and d.state = 'pending'
  returning d.*
)
select t.id::text, t.fence, t.tries, t.tenant_id, t.destination, t.origin, t.url,
       case when s.id is null then t.sending else t.sending || jsonb_build_object(
         'secret', s.secret,
         'old_secrets', coalesce((select jsonb_agg(o ->> 'secret') from jsonb_array_elements(s.old_secrets) as o
                                  where (o ->> 'until')::timestamptz > now()), '[]')) end,
       t.body, extract(epoch from now() - t.begun_at)::double precision, t.job_id::text
from claimed t
left join cograil.subscriptions s
  on s.tenant_id = t.tenant_id and s.id = case when t.destination <> 'callback' then t.destination::uuid end
order by min(t.created_at) over (partition by coalesce(t.job_id, t.id), t.destination), t.job_id, t.seq, t.id
