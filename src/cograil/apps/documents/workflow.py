"""The workflow of a document. The configuration is part of its text: another value makes another version."""

from __future__ import annotations

import json

from cograil.apps.documents.settings import DocumentSettings
from cograil.definitions import read_workflow
from cograil.errors import VersionTaken
from cograil.store.database import Transaction
from cograil.store.workflow_queries import find_workflow
from cograil.verbs.publish import publish

APP = "documents"
WORKFLOW_ID = "cograil.documents"
QUEUE = "documents"
PREP, OCR, FINISH = "documents.prep", "documents.ocr", "documents.finish"
PREP_SERVICE, OCR_SERVICE = "documents.prep_service", "documents.ocr_service"
FINISH_ATTEMPTS = 10
FINISH_SECONDS = 900

TEXT = """\
workflow_id: {workflow_id}
version: {version}
name: A document, from the folder to a searchable PDF
inputs:
  folder: {{type: string, description: "The folder of a user, empty for the common one."}}
  key: {{type: string}}
  name: {{type: string}}
  staged: {{type: string}}
  profile: {{type: object}}
limits: {{concurrency: {in_flight}}}
nodes:
  prep:
    handler: {prep}
    queue: {queue}
    params: {{{who}, staged: "{{{{ inputs.staged }}}}", terms: {terms}}}
    timeout_seconds: {timeout}
    retry: {{max_attempts: {prep_attempts}, initial_delay_seconds: {delay}, max_delay_seconds: 300}}
    limits: {{concurrency: {prep_concurrency}}}
    next: ocr
  ocr:
    handler: {ocr}
    queue: {queue}
    params: {{{who}, terms: {terms}}}
    timeout_seconds: {timeout}
    retry: {{max_attempts: {ocr_attempts}, initial_delay_seconds: {delay}, max_delay_seconds: 300}}
    limits: {{concurrency: {ocr_concurrency}}}
    next: finish
  finish:
    handler: {finish}
    queue: {queue}
    params:
      folder: "{{{{ inputs.folder }}}}"
      key: "{{{{ inputs.key }}}}"
      name: "{{{{ inputs.name }}}}"
      prep: "{{{{ nodes.prep.output }}}}"
      ocr: "{{{{ nodes.ocr.output }}}}"
{plain}    timeout_seconds: {finish_timeout}
    retry: {{max_attempts: {finish_attempts}, initial_delay_seconds: {delay}, max_delay_seconds: 300}}
"""
DOCUMENT_PARAMS = ", ".join(
    f'{name}: "{{{{ inputs.{name} }}}}"' for name in ("folder", "key", "name", "profile")
)


def text_of(settings: DocumentSettings, version: int, pulse_seconds: float = 5.0) -> str:
    """The workflow as it is configured."""
    terms = {
        "pulse_seconds": pulse_seconds,
        "timeout_seconds": settings.job_timeout_seconds,
        "min_bytes": settings.min_pdf_size_bytes,
        "is_resumed": settings.enable_smart_resume,
        "jobs": settings.ocr_jobs,  # 0: as many as the worker has cores
        "lang": settings.ocr_lang,
    }
    return TEXT.format(
        workflow_id=WORKFLOW_ID,
        version=version,
        queue=QUEUE,
        who=DOCUMENT_PARAMS,
        terms=json.dumps(terms),
        prep=PREP_SERVICE if settings.prep_url else PREP,
        ocr=OCR_SERVICE if settings.ocr_url else OCR,
        finish=FINISH,
        in_flight=settings.max_jobs_in_flight,
        prep_concurrency=settings.prep_concurrency,
        ocr_concurrency=settings.ocr_concurrency,
        prep_attempts=settings.max_attempts_prep,
        ocr_attempts=settings.max_attempts_ocr,
        finish_attempts=FINISH_ATTEMPTS,
        finish_timeout=FINISH_SECONDS,
        plain="      has_plain_names: true\n" if settings.plain_names else "",
        delay=settings.retry_seconds,
        timeout=settings.stage_timeout_seconds,
    )


async def publish_current(
    tx: Transaction, settings: DocumentSettings, pulse_seconds: float, tenant: str = "default"
) -> int:
    """The definition for these settings: the latest, or the next version. Raises VersionTaken."""
    latest = await find_workflow(tx, tenant, WORKFLOW_ID, None)
    version = latest.version if latest else 1
    text = text_of(settings, version, pulse_seconds)
    try:
        return (await publish(tx, read_workflow(text, app=APP), text, tenant)).definition_id
    except VersionTaken:
        text = text_of(settings, version + 1, pulse_seconds)
        return (await publish(tx, read_workflow(text, app=APP), text, tenant)).definition_id
