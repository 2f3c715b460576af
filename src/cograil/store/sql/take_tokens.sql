-- name: take_tokens
-- One row, one upsert: the refill since the last take is computed under the row's lock, by a clock that is read after
-- the lock was obtained. A refused call takes nothing and gets the time to wait. The time at which the bucket is full
-- is computed with the capacity of this call, or of an earlier one if that was larger.
insert into cograil.buckets as b (tenant_id, name, tokens, refilled_at, wait_seconds, full_at)
values (%(tenant)s, %(name)s, %(capacity)s::float8 - %(amount)s::float8, clock_timestamp(), 0,
        clock_timestamp() + least(%(longest)s::float8, %(amount)s::float8 / %(per_second)s::float8) * interval '1 second')
on conflict (tenant_id, name) do update
set (tokens, refilled_at, wait_seconds, full_at) = (
  select level.tokens - taken.amount, clock.at,
         case when taken.amount > 0 then 0
           else greatest(0.000001, (%(amount)s - level.tokens) / %(per_second)s::float8) end,
         clock.at + interval '1 second' * least(%(longest)s::float8, greatest(
           (%(capacity)s - level.tokens + taken.amount) / %(per_second)s::float8,
           greatest(0, extract(epoch from b.full_at - clock.at)::float8) + taken.amount / %(per_second)s::float8))
  from (select clock_timestamp() as at offset 0) clock
  cross join lateral (
    select least(%(capacity)s, b.tokens
      + greatest(0, extract(epoch from clock.at - b.refilled_at)::float8) * %(per_second)s) as tokens) level
  cross join lateral (
    select case when level.tokens >= %(amount)s then %(amount)s::float8 else 0 end as amount) taken)
returning wait_seconds
