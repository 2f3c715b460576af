import sys; sys.path.insert(0,'/work/main/tests/database')
from lab import open_lab
HELLO="""
workflow_id: hello
nodes:
  greet:
    handler: hello_world
    params: {name: "{{ inputs.name }}"}
    next: again
  again:
    handler: echo
    params: {said: "{{ nodes.greet.output.message }}"}
"""
async def test_hello(dsn):
    async with open_lab(dsn) as lab, lab.running():
        job = await lab.submit(HELLO, {"name": "Ada"})
        ended = await lab.ended(job, 10)
        for e in await lab.events(job): print(e["seq"], e["event_type"], e["node_id"], e["data"])
        print(ended)
        for n in (await lab.nodes(job)).values(): print(n)
        assert ended["status"]=="completed"
