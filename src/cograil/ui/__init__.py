"""The web pages, under /ui/.

A page is rendered here, from what the store reads; what one does on it goes through the very functions that
serve the API, so that it is checked, decided and audited the same. Pages hold no state: a session is a signed
cookie that names a key, and what is live comes from the feed of events. No code stands inside a page.

    app.py        the door of the pages, and what needs no key: login, static files
    sessions.py   who one is, and that a form is ours
    rendering.py  templates and the words in them
    board.py      a job as a graph, now and at any moment before
    app_pages.py  which apps have pages, and when
    pages/        a module for each kind of page, and actions.py for what one does there
    static/       style sheet, small modules of JavaScript, and in vendor/ what others wrote
"""
