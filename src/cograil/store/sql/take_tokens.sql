-- name: take_tokens
-- One row, one upsert: what has flowed in since the last taker is computed under the row's lock, by a clock
-- that is read after the wait for it. Who is refused takes nothing, and is told how long to wait.
insert into cograil.buckets as b (tenant_id, name, tokens, refilled_at, wait_seconds)
values (%(tenant)s, %(name)s, %(capacity)s::float8 - %(amount)s::float8, clock_timestamp(), 0)
on conflict (tenant_id, name) do update
set (tokens, refilled_at, wait_seconds) = (
  select case when level.tokens >= %(amount)s then level.tokens - %(amount)s else level.tokens end,
         clock.at,
         case when level.tokens >= %(amount)s then 0
           else greatest(0.000001, (%(amount)s - level.tokens) / %(per_second)s::float8) end
  from (select clock_timestamp() as at offset 0) clock
  cross join lateral (
    select least(%(capacity)s, b.tokens
      + greatest(0, extract(epoch from clock.at - b.refilled_at)::float8) * %(per_second)s) as tokens) level)
returning wait_seconds
