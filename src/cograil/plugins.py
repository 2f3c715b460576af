"""The public module for authors of apps: `App`, and everything that an app may import from cograil.

An app is a package with an entry point in the group `cograil.apps`; `docs/how-to/apps.md` shows how to write one, and
`examples/laundry` is one. The names below are kept compatible; the modules behind them are not public.

`App` and the classes for settings are cheap to import. The other names are loaded from their modules when they
are first used, because every process loads every `App`, and `cograil --help` must not load the HTTP server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cograil.app_registry import App, AppPages, Check, Command, NavigationEntry, PortContext, lazy
from cograil.errors import (
    CograilError,
    Conflict,
    DatabaseUnavailable,
    JobNotFound,
    NoInstance,
    NotFound,
    Problem,
    UsageError,
    WaitTimeout,
)
from cograil.setting_sections import SettingsSection, split_commas

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from cograil.app_extras import require_extra, require_programs
    from cograil.cli.display.output import out, plain, say, table, warn, write_json
    from cograil.cli.instance_client import (
        InstanceClient,
        audit,
        connected,
        connected_to_read,
        current_user,
        private_client,
    )
    from cograil.cli.options import config_option, instance_options, json_option, read_settings, settings_for
    from cograil.definitions import read_workflow
    from cograil.egress import OutboundGuard, PublicOnly
    from cograil.http.server.dispatcher import ApiContext, Call, Dispatcher, reply
    from cograil.http.server.openapi import API as API_STYLE
    from cograil.http.server.openapi import ApiDescription, ApiInfo
    from cograil.http.server.problem_details import Refusal
    from cograil.http.server.problem_details import answer as problem_response
    from cograil.http.server.request_parsing import Body, Query
    from cograil.http.server.routing import Router
    from cograil.metrics import counter, gauge, histogram
    from cograil.model.ids import is_id, new_id
    from cograil.model.job import Bounds
    from cograil.model.readiness_check import DEGRADED, OK
    from cograil.model.roles import Caller
    from cograil.model.workflow import Json, Workflow
    from cograil.processes import private_instance, run_async
    from cograil.runners.context import Context, Fail, Retry
    from cograil.runners.handler_registry import Registry
    from cograil.settings import Settings
    from cograil.store.database import Database, Row, Transaction
    from cograil.store.doctor import Finding
    from cograil.store.job_queries import list_processes
    from cograil.store.statements import statement
    from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
    from cograil.ui.pages.action_forms import Action, add_actions
    from cograil.ui.rendering import gone_to, page
    from cograil.verbs.advance import EngineContext, make_engine_context
    from cograil.verbs.app_jobs import submit_app_job
    from cograil.verbs.cancel import cancel
    from cograil.verbs.publish import publish
    from cograil.verbs.submit import Submission, submit
    from cograil.worker.background_tasks import background

_LAZY = {
    "cograil.app_extras": "require_extra require_programs",
    "cograil.cli.display.output": "out plain say table warn write_json",
    "cograil.cli.instance_client": "InstanceClient audit connected connected_to_read private_client current_user",
    "cograil.cli.options": "config_option instance_options json_option read_settings settings_for",
    "cograil.definitions": "read_workflow",
    "cograil.egress": "OutboundGuard PublicOnly",
    "cograil.http.server.dispatcher": "Call Dispatcher ApiContext reply",
    "cograil.http.server.openapi": "API_STYLE ApiDescription ApiInfo",
    "cograil.http.server.problem_details": "Refusal problem_response",
    "cograil.http.server.request_parsing": "Body Query",
    "cograil.http.server.routing": "Router",
    "cograil.metrics": "counter gauge histogram",
    "cograil.model.ids": "is_id new_id",
    "cograil.model.job": "Bounds",
    "cograil.model.readiness_check": "DEGRADED OK",
    "cograil.model.roles": "Caller",
    "cograil.model.workflow": "Json Workflow",
    "cograil.processes": "private_instance run_async",
    "cograil.runners.context": "Context Fail Retry",
    "cograil.runners.handler_registry": "Registry",
    "cograil.settings": "Settings",
    "cograil.store.database": "Database Row Transaction",
    "cograil.store.doctor": "Finding",
    "cograil.store.job_queries": "list_processes",
    "cograil.store.statements": "statement",
    "cograil.ui.page_context": "HTML PageRequest as_call pages sent_form",
    "cograil.ui.pages.action_forms": "Action add_actions",
    "cograil.ui.rendering": "gone_to page",
    "cograil.verbs.advance": "EngineContext make_engine_context",
    "cograil.verbs.app_jobs": "submit_app_job",
    "cograil.verbs.cancel": "cancel",
    "cograil.verbs.publish": "publish",
    "cograil.verbs.submit": "Submission submit",
    "cograil.worker.background_tasks": "background",
    "starlette.responses": "Response",
    "starlette.types": "ASGIApp",
}
_ALIASES = {"API_STYLE": "API", "problem_response": "answer"}  # the names in their own modules
_MODULES = {name: module for module, names in _LAZY.items() for name in names.split()}

__all__ = [
    "API_STYLE",
    "DEGRADED",
    "HTML",
    "OK",
    "ASGIApp",
    "Action",
    "ApiContext",
    "ApiDescription",
    "ApiInfo",
    "App",
    "AppPages",
    "Body",
    "Bounds",
    "Call",
    "Caller",
    "Check",
    "CograilError",
    "Command",
    "Conflict",
    "Context",
    "Database",
    "DatabaseUnavailable",
    "Dispatcher",
    "EngineContext",
    "Fail",
    "Finding",
    "InstanceClient",
    "JobNotFound",
    "Json",
    "NavigationEntry",
    "NoInstance",
    "NotFound",
    "OutboundGuard",
    "PageRequest",
    "PortContext",
    "Problem",
    "PublicOnly",
    "Query",
    "Refusal",
    "Registry",
    "Response",
    "Retry",
    "Router",
    "Row",
    "Settings",
    "SettingsSection",
    "Submission",
    "Transaction",
    "UsageError",
    "WaitTimeout",
    "Workflow",
    "add_actions",
    "as_call",
    "audit",
    "background",
    "cancel",
    "config_option",
    "connected",
    "connected_to_read",
    "counter",
    "current_user",
    "gauge",
    "gone_to",
    "histogram",
    "instance_options",
    "is_id",
    "json_option",
    "lazy",
    "list_processes",
    "make_engine_context",
    "new_id",
    "out",
    "page",
    "pages",
    "plain",
    "private_client",
    "private_instance",
    "problem_response",
    "publish",
    "read_settings",
    "read_workflow",
    "reply",
    "require_extra",
    "require_programs",
    "run_async",
    "say",
    "sent_form",
    "settings_for",
    "split_commas",
    "statement",
    "submit",
    "submit_app_job",
    "table",
    "warn",
    "write_json",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), _ALIASES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
