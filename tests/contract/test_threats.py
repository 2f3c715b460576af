"""Every row of bad input and every fault of receivers that the doors must survive has a test: in the corpus,
or one that is named here."""

from __future__ import annotations

from tests.support.bad_requests import CORPUS
from tests.support.named_tests import missing_tests

# The rows that are about the doors, by their ids in the matrix. It has no B142, B143, B155 and B156.
ROWS = [
    *(f"B{number:02}" for number in range(1, 57)),
    "B16a",
    *(f"B{number}" for number in range(125, 139)),
    *(f"B{number}" for number in range(144, 155)),
    *(f"B{number}" for number in range(157, 163)),
]

# Beside the corpus, which names its rows itself: the file and the test that is about the row.
TESTED = {
    "B02": "database/test_api_bad_requests.py::test_a_body_that_is_too_large_ends_reading",
    "B03": "database/test_api_bad_requests.py::test_requests_behind_a_request_of_two_lengths_are_not_answered",
    "B09": "database/test_api_bad_requests.py::test_a_slow_body_is_not_waited_for",
    "B16a": "database/test_api_jobs.py::test_a_cursor_of_another_list_is_refused",
    "B32": "database/test_api_bad_requests.py::test_large_numbers_come_back_as_they_were",
    "B33": "database/test_api_bad_requests.py::test_spelling_makes_no_other_request",
    "B34": "database/test_api_bad_requests.py::test_spelling_makes_no_other_request",
    "B35": "database/test_api_bad_requests.py::test_spelling_makes_no_other_request",
    "B36": "database/test_api_bad_requests.py::test_text_of_all_sorts_comes_back_as_it_was",
    "B40": "database/test_api_access_matrix.py::test_another_tenants_rows_look_exactly_like_unknown_ids",
    "B49": "database/test_pages.py::test_text_of_a_job_is_never_markup",
    "B50": "database/test_api_bad_requests.py::test_a_request_is_logged_in_one_line",
    "B53": "database/test_api_jobs.py::test_two_tenants_may_have_the_same_key",
    "B54": "database/test_api_jobs.py::test_another_request_under_the_key_is_refused",
    "B55": "database/test_api_jobs.py::test_a_second_submit_waits_for_the_first_and_gets_its_response",
    "B56": "database/test_api_jobs.py::test_a_key_is_free_again_when_its_time_is_over",
    "B125": "unit/test_callback_validation.py::test_plain_http_is_refused_where_https_is_demanded",
    "B133": "unit/test_http_delivery.py::test_a_name_with_one_address_that_is_not_public_is_blocked",
    "B137": "database/test_relay.py::test_an_answer_without_end_is_cut_off_and_no_answer",
    "B138": "database/test_event_loops.py::test_a_receiver_that_answers_every_event_with_a_job_comes_to_an_end",
    "B144": "database/test_api_keys.py::test_wrong_keys_are_all_refused_alike",
    "B145": "database/test_api_keys.py::test_wrong_keys_are_all_refused_alike",
    "B146": "database/test_api_keys.py::test_guessing_is_slowed_down",
    "B147": "database/test_api_access_matrix.py::test_every_route_is_open_to_its_roles_and_no_others",
    "B149": "database/test_api_access_matrix.py::test_every_route_is_open_to_its_roles_and_no_others",
    "B150": "acceptance/test_gateway_guard.py::"
    "test_the_gateway_takes_no_other_methods_and_no_method_in_a_header",
    "B151": "acceptance/test_gateway_matrix.py::test_another_tenant_gets_the_answers_for_unknown_ids",
    "B152": "database/test_pages.py::test_a_form_needs_its_token_its_origin_a_yes_and_the_role",
    "B153": "database/test_pages.py::test_login_leads_to_no_other_site_and_keeps_guessers_out",
    "B154": "database/test_api_keys.py::test_a_revoked_key_is_refused_within_seconds",
    "B157": "database/test_api_workers.py::test_a_result_of_an_attempt_that_is_not_theirs_is_refused",
    "B158": "database/test_api_workers.py::test_a_second_result_is_refused_and_the_first_stays",
    "B159": "database/test_api_workers.py::test_a_result_after_a_cancel_is_refused",
    "B160": "database/test_api_workers.py::"
    "test_checkpoints_do_not_go_back_and_the_next_attempt_gets_the_last",
    "B161": "database/test_api_workers.py::"
    "test_progress_is_written_once_a_second_at_most_and_the_last_in_the_end",
    "B162": "unit/test_handler_context.py::test_a_line_of_any_kind_is_cut_escaped_and_without_secrets",
}


# What receivers do to us, by the ids of the fault matrix.
FAULTS = {
    "F31": "database/test_relay.py::test_a_receiver_that_was_down_gets_all_of_it_in_order",
    "F32": "database/test_relay_receiver_faults.py::test_receivers_that_never_answer_hold_up_nobody",
    "F33": "database/test_relay_receiver_faults.py::test_a_refusal_of_any_kind_is_recorded_and_tried_again",
    "F34": "database/test_relay_receiver_faults.py::test_a_refusal_of_any_kind_is_recorded_and_tried_again",
    "F35": "database/test_relay_receiver_faults.py::"
    "test_a_callback_that_is_gone_is_told_nothing_more_and_subscribers_hear_of_it",
    "F36": "database/test_relay_receiver_faults.py::test_a_redirect_is_recorded_and_not_followed",
    "F37": "unit/test_dns_rebinding.py::test_the_address_that_was_checked_is_the_one_that_is_connected_to",
    "F38": "acceptance/test_relay_processes.py::test_a_relay_that_is_killed_at_any_point_loses_nothing",
    "F38a": "unit/test_http_delivery.py::test_a_certificate_that_is_not_trusted_is_a_failure_and_nothing_is_sent",
    "F38b": "database/test_relay.py::test_an_answer_without_end_is_cut_off_and_no_answer",
}


def test_every_row_has_a_test() -> None:
    sent = {row.id for rows in CORPUS for row in rows}
    assert [row for row in ROWS if row not in sent | TESTED.keys()] == []
    assert sent | TESTED.keys() <= set(ROWS)
    assert FAULTS.keys() == {*(f"F{number}" for number in range(31, 39)), "F38a", "F38b"}


def test_every_test_that_is_named_exists() -> None:
    assert missing_tests([*TESTED.values(), *FAULTS.values()]) == []
