"""The gateway: what callers outside may see and ask for.

It reads the database in a role that can do nothing else, and sends every change to the API, with the key of
whoever asked for it: it has none of its own, so whoever breaks in here can do no more than the callers can.

    startup    what must be there before anything is served, the probes, and the application
    door       how it says what goes wrong, and what is behind it
    upstream   the API and the workers, as it talks to them
    platform   requests of callers outside, who know nothing of jobs; submits of operators
    status     jobs as operators look at them
    admin      what operators look at across jobs
    proxy      the paths of the API and of workers that are passed on, and no others
"""
