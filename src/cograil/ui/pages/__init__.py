"""The pages, a module for each kind. Each reads in one short transaction and renders one template."""

from cograil.ui.pages.actions import actions
from cograil.ui.pages.approvals import approvals
from cograil.ui.pages.deliveries import deliveries
from cograil.ui.pages.home import home
from cograil.ui.pages.job import job_pages
from cograil.ui.pages.jobs import jobs
from cograil.ui.pages.node import node_pages
from cograil.ui.pages.schedules import schedules
from cograil.ui.pages.submitting import submitting
from cograil.ui.pages.watching import watching
from cograil.ui.pages.workflows import workflows

TABLES = (
    home,
    jobs,
    job_pages,
    node_pages,
    workflows,
    submitting,
    watching,
    deliveries,
    approvals,
    schedules,
    actions,
)
