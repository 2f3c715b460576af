"""The loop that advances jobs: news and due jobs go to `verbs.advance`, dead workers' tasks are rescued.

Any number may run; none leads. Whoever holds a job's row lock writes it, for one transaction. What
an orchestrator had in hand when it died is still in the inbox. Nothing is decided here.
"""
