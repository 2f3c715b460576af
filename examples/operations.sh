#!/usr/bin/env bash
# What an operator does, on a running instance (`cograil up --workflows examples --app examples.shop`): stop the line, ask
# why a job waits, let it go on, run a job again from a node with another input, and cancel many at once.
set -euo pipefail

job_id() { python3 -c 'import json, sys; print(json.load(sys.stdin)["job_id"])'; }

echo "== stop the line: what is submitted now waits, and says why"
cograil pause workflow orders --reason "the bank is down"
job=$(cograil submit orders --input order_id=7 --json | job_id)
cograil explain "$job"

echo "== let it go on"
cograil resume workflow orders
cograil events "$job" --follow    # returns when it has ended

echo "== run it again from one node with another input: first what would happen, then for real"
cograil retry "$job" --from pack --preview
cograil retry "$job" --from pay --input order_id=8 --wait

echo "== many at once: a job of its own, with a preview"
cograil pause workflow orders
for order in 1 2 3; do cograil submit orders --input order_id=$order --label batch=night >/dev/null; done
cograil bulk cancel --label batch=night --preview
cograil bulk cancel --label batch=night --reason "submitted twice" --wait
cograil resume workflow orders

echo "== is all well?"
cograil doctor
