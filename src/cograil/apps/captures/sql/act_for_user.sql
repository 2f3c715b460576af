-- name: act_for_user
-- From here to the end of the transaction row-level security shows the rows of this user.
select set_config('app.current_user_id', %(user)s, true)
