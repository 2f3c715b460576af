"""The pages, a module for each kind. Each page reads in one short transaction and renders one template."""

from cograil.ui.pages.action_forms import actions
from cograil.ui.pages.administration_page import administration
from cograil.ui.pages.api_reference_page import reference_pages
from cograil.ui.pages.approvals_page import approvals
from cograil.ui.pages.bulk_page import bulk
from cograil.ui.pages.dashboard_page import home
from cograil.ui.pages.deliveries_page import deliveries
from cograil.ui.pages.job_list_page import jobs
from cograil.ui.pages.job_page import job_pages
from cograil.ui.pages.logs_page import log_pages
from cograil.ui.pages.monitoring_pages import watching
from cograil.ui.pages.node_page import node_pages
from cograil.ui.pages.retry_page import retry_pages
from cograil.ui.pages.schedules_page import schedules
from cograil.ui.pages.submit_page import submit_pages
from cograil.ui.pages.workflows_page import workflows

ROUTERS = (
    home,
    jobs,
    bulk,
    job_pages,
    node_pages,
    log_pages,
    retry_pages,
    workflows,
    submit_pages,
    watching,
    deliveries,
    approvals,
    schedules,
    administration,
    actions,
    reference_pages,
)
