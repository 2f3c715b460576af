"""Event delivery: sends events to the receivers of callbacks and subscriptions.

    outbox_fan_out    turns outbox rows into deliveries, one for each destination
    cloudevents       renders an event as the bytes of a request
    signatures        signs a request, so that receivers can verify the sender
    http_delivery     one attempt: sends a request and judges the response
    origin_limits     limits how many deliveries an origin gets at a time
    circuit_breaker   pauses origins that do not respond
    relay             the loop: fan out, claim, send, record

Delivery is at least once, with the same id and the same bytes on every attempt. Any number of relays may run.
"""
