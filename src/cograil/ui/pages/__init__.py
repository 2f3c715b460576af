"""The pages, a module for each kind. Each reads in one short transaction and renders one template."""

from cograil.ui.pages.actions import actions
from cograil.ui.pages.administration import administration
from cograil.ui.pages.approvals import approvals
from cograil.ui.pages.bulk import bulk
from cograil.ui.pages.deliveries import deliveries
from cograil.ui.pages.home import home
from cograil.ui.pages.job import job_pages
from cograil.ui.pages.jobs import jobs
from cograil.ui.pages.logs import log_pages
from cograil.ui.pages.node import node_pages
from cograil.ui.pages.reference import reference_pages
from cograil.ui.pages.retry import retry_pages
from cograil.ui.pages.schedules import schedules
from cograil.ui.pages.submitting import submitting
from cograil.ui.pages.watching import watching
from cograil.ui.pages.workflows import workflows

TABLES = (
    home,
    jobs,
    bulk,
    job_pages,
    node_pages,
    log_pages,
    retry_pages,
    workflows,
    submitting,
    watching,
    deliveries,
    approvals,
    schedules,
    administration,
    actions,
    reference_pages,
)
