"""The web pages, under /ui/.

Pages are rendered from the views of the store. Their actions call the functions that serve the API, so the
same checks, roles and audit entries apply. Pages hold no state: a session is a signed cookie that names a
key, and live data comes from the event feed. Pages contain no inline scripts.

    ui_application    the application, and the paths that need no key: login, static files
    browser_sessions  session cookies and CSRF tokens
    rendering         templates and their filters
    graph_model       a job as a graph, now and at any earlier event
    app_pages         the pages of apps
    pages/            a module for each kind of page; action_forms.py for their actions
    static/           style sheet, JavaScript modules, and third-party files in vendor/
"""
