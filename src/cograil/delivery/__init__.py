"""What leaves: events on their way to whoever wants to hear them.

    spreading     rows of the outbox become deliveries, one for each destination
    cloudevents   an event as the bytes that are sent
    signatures    who sent it, for receivers to check
    posting       one try: a request, and what its answer means
    lanes         how much is taken on for each origin
    breaker       a host that does not answer is left alone for a while
    relay         the loop: spread, claim, send, record

At least once, with the same id and the same bytes on every try. Any number of relays may run.
"""
